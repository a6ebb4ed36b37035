// What is sent again after a failure.

import assert from "node:assert/strict";
import { test } from "node:test";

globalThis.sessionStorage = { getItem: () => "token" };

const { Session } = await import("./ui/app/session.js");

test("a fork whose message fails is not made again, and its message has the same key until it changes", async () => {
  const asked = [];
  const answers = [];
  globalThis.fetch = async (path, { body, headers }) => {
    asked.push([path, JSON.parse(body), headers["Idempotency-Key"]]);
    const [status, said] = answers.shift();
    return new Response(JSON.stringify(said), { status });
  };
  const session = new Session("one");
  const tries = [[201, { task_id: "fork" }], [503, {}], [503, {}], [202, { task_id: "fork" }]];
  answers.push(...tries);
  await assert.rejects(session.fork({ at: 4, message: "hello" }), { status: 503 });
  await assert.rejects(session.fork({ at: 4, message: "hello" }), { status: 503 });
  assert.equal(await session.fork({ at: 4, message: "hello, you" }), "fork");
  assert.deepEqual(asked.map(([path]) => path), ["task/fork", "message", "message", "message"]);
  assert.deepEqual(asked.slice(1).map(([, { task_id }]) => task_id), ["fork", "fork", "fork"]);
  const [first, second, edited] = asked.slice(1).map(([, , key]) => key);
  assert.ok(first);
  assert.equal(second, first);
  assert.notEqual(edited, first);

  answers.push([201, { task_id: "another" }], [202, { task_id: "another" }]);
  assert.equal(await session.fork({ at: 4, message: "hello" }), "another");
});
