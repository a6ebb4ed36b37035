import assert from "node:assert/strict";
import { test } from "node:test";

import { Tries } from "./ui/admin/tries.js";
import { sumOf } from "./ui/components/usage.js";

globalThis.sessionStorage = { getItem: () => "token" };

const outcome = { status: "completed", answer: "", turns: 2, calls: 3, cost: 0.5, unpriced_calls: 1, seconds: 1.5 };
const task = (n) => ({ task_id: `t${n}` });
const json = (value, status = 200) => new Response(JSON.stringify(value), { status });

test("a few tasks run at a time; one that fails says why, and no other is begun after a stop", async () => {
  let [running, most] = [0, 0];
  const begun = [];
  const tries = new Tries();
  globalThis.fetch = async (url, { body }) => {
    const path = new URL(url, "http://x").pathname;
    if (path === "/task/fork") {
      const { task_id: id, at, draft } = JSON.parse(body);
      assert.deepEqual([at, draft], ["message", "short"]);
      begun.push(id);
      if (id === "t1") return json({ detail: "no" }, 403);
      most = Math.max(most, ++running);
      if (begun.length === 6) tries.stop();
      return json({ task_id: `fork of ${id}` });
    }
    if (path === "/task/comparison") return (running--, json({ before: outcome, after: outcome }));
    return json({ status: "completed" });
  };
  await tries.run("short", [0, 1, 2, 3, 4, 5, 6, 7, 8, 9].map(task), "refuse");
  assert.equal(most, 4);
  assert.deepEqual(begun, ["t0", "t1", "t2", "t3", "t4", "t5"]);
  assert.equal(tries.isRunning, false);
  assert.deepEqual(tries.rows.map(({ problem }) => problem?.message), [undefined, "no", undefined, undefined, undefined, undefined]);
  assert.deepEqual(sumOf(tries.compared.map(({ after }) => after)), { turns: 10, calls: 15, cost: 2.5, unpriced_calls: 5, seconds: 7.5 });
});

test("a server that can't be reached for a moment is asked again", async (t) => {
  t.mock.timers.enable({ apis: ["setTimeout"] });
  const answers = [json({ task_id: "f" }), json({}, 503), json({ status: "running" }), json({ status: "paused" }), json({ before: outcome, after: { ...outcome, status: "paused" } })];
  globalThis.fetch = async () => answers.shift();
  const tries = new Tries();
  const done = tries.run("short", [task(1)], "ask");
  while (answers.length) {
    t.mock.timers.tick(1_000);
    await new Promise(setImmediate);
  }
  await done;
  assert.equal(tries.compared[0].after.status, "paused");
});
