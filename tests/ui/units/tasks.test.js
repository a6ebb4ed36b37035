import assert from "node:assert/strict";
import { test } from "node:test";

import { TaskList } from "./ui/tasks/task-list.js";

// What a page has.
globalThis.removeEventListener = () => {};
globalThis.sessionStorage = { getItem: () => "token" };

const record = (n, seq = 1) => ({ task_id: `t${n}`, updated: new Date(n * 1000).toISOString(), status: "running", seq });
const page = (records, cursor) => new Response(JSON.stringify(Object.fromEntries(records.map((each) => [each.task_id, each]))), { headers: { "X-Searched": "texts", ...(cursor ? { "X-Next-Cursor": cursor } : {}) } });

/** A list whose server answers with these pages, one after the other. */
function serve(...pages) {
  globalThis.fetch = async () => pages.shift();
  return new TaskList();
}

const ids = (list) => list.records.map(({ task_id }) => task_id);

test("newer tasks come on top, older pages stay", async () => {
  const list = serve(page([record(3), record(2)], "c1"), page([record(1)]), page([record(4), record(3, 9)], "c2"));
  try {
    await list.refresh();
    await list.readOlder();
    assert.deepEqual(ids(list), ["t3", "t2", "t1"]);
    assert.equal(list.cursor, null);
    await list.refresh();
    assert.deepEqual(ids(list), ["t4", "t3", "t2", "t1"]);
    assert.equal(list.find("t3").seq, 9);
    list.put(record(5));
    list.put(record(2, 7));
    assert.deepEqual(ids(list), ["t5", "t4", "t3", "t2", "t1"]);
    assert.equal(list.find("t2").seq, 7);
  } finally {
    list.stop(); // its timer
  }
});
