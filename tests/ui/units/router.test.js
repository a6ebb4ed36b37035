import assert from "node:assert/strict";
import { test } from "node:test";

import { formatRoute, parseRoute, stepRoute } from "./ui/app/router.js";

test("each address leads to its view and back", () => {
  for (const hash of ["", "new", "task=a%2Fb", "task=a&tab=trace&at=3&entry=7", "task=a&tab=graph", "task=a&tab=trace&compare", "q=two+words&status=failed&changed=week", "new&q=x", "task=a&tab=trace&q=x&changed=2026-11-01..&compare", "mail", "mail=outbox", "mail=inbox&entry=7", "mail=lists&entry=list%3Atea%40team%40host", "swarm", "swarm=math", "admin", "admin=tokens", "sign-in=x"]) {
    assert.equal(formatRoute(parseRoute(`#${hash}`)), hash);
  }
});

test("what can't be read is left out", () => {
  assert.deepEqual(parseRoute("#task=a&tab=nothing&at=x"), { view: "tasks", task: "a", filter: {}, tab: "conversation", at: null, entry: null, isComparing: false });
});

test("a step changes what it names; another task begins afresh", () => {
  const route = parseRoute("#task=a&tab=trace&at=3");
  assert.equal(formatRoute(stepRoute(route, { entry: 5 })), "task=a&tab=trace&at=3&entry=5");
  assert.equal(formatRoute(stepRoute(route, { at: null })), "task=a&tab=trace");
  assert.equal(formatRoute(stepRoute(route, { task: "b" })), "task=b");
  assert.equal(formatRoute(stepRoute(route, { view: "admin", page: "tokens" })), "admin=tokens");
  assert.equal(formatRoute(stepRoute(route, { view: "tasks" })), "");
});

test("the filter of the list stays until another view is shown", () => {
  const route = parseRoute("#task=a&tab=trace&compare&q=x&changed=today");
  assert.equal(formatRoute(stepRoute(route, { task: "b" })), "task=b&q=x&changed=today");
  assert.equal(formatRoute(stepRoute(route, { view: "tasks" })), "q=x&changed=today");
  assert.equal(formatRoute(stepRoute(route, { filter: { q: "", status: "failed" } })), "task=a&tab=trace&status=failed&compare");
  assert.equal(formatRoute(stepRoute(stepRoute(route, { view: "swarm" }), { task: "b" })), "task=b");
});
