import assert from "node:assert/strict";
import { test } from "node:test";

import { timesOf } from "./ui/tasks/dates.js";
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

test("dates are the reader's days", () => {
  const now = new Date(2026, 2, 1, 15, 30);
  const times = (changed) => Object.values(timesOf(changed, now)).map((time) => time && new Date(time).toString());
  const day = (...at) => new Date(...at).toString();
  assert.deepEqual(times("today"), [day(2026, 2, 1), undefined]);
  assert.deepEqual(times("yesterday"), [day(2026, 1, 28), day(2026, 2, 1)]);
  assert.deepEqual(times("week"), [day(2026, 1, 23), undefined]);
  assert.deepEqual(times("2026-02-27..2026-02-28"), [day(2026, 1, 27), day(2026, 2, 1)]);
  assert.deepEqual(times("..2026-02-28"), [undefined, day(2026, 2, 1)]);
  for (const none of ["", "..", "soon", "constructor", "x..y"]) assert.deepEqual(times(none), [undefined, undefined]);
});

test("the tasks of a filter are asked for, and others don't join them", async () => {
  const asked = [];
  globalThis.fetch = async (url) => (asked.push(new URL(url, "http://x").searchParams), page([record(3)]));
  const list = new TaskList({ q: "bees", changed: "today" });
  try {
    await list.refresh();
    assert.deepEqual([asked[0].get("q"), asked[0].get("since")], ["bees", timesOf("today").since]);
    list.put(record(9));
    assert.deepEqual(ids(list), ["t3"]);
    list.filter({ q: "bees", changed: "today" });
    assert.equal(asked.length, 1);
    list.filter({ status: "failed" });
    assert.deepEqual([asked[1].get("q"), asked[1].get("since"), asked[1].get("status")], [" ", null, "failed"]);
  } finally {
    list.stop();
  }
});
