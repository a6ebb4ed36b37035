import assert from "node:assert/strict";
import { test } from "node:test";

import { Live, isLive } from "./ui/app/live.js";

const BEGIN = Date.parse("2026-01-01T00:00:00Z");
const event = (seconds, facts) => ({ timestamp: new Date(BEGIN + seconds * 1000).toISOString(), extra_data: facts });

test("who works on what, since when, and why it takes long", () => {
  const live = new Live();
  live.read("turn_started", event(0, { agent: "lead" }));
  assert.deepEqual([...live.agents.get("lead").work], []);
  live.read("model_call_started", event(1, { agent: "lead", model: "openai/gpt", call: 1 }));
  live.read("model_call_retried", event(2, { agent: "lead", call: 1, reason: "rate limit", attempt: 2, retry_in: 4 }));
  const [job] = live.agents.get("lead").work.values();
  assert.deepEqual(job, { kind: "model", name: "openai/gpt", since: BEGIN + 1000, retry: { reason: "rate limit", attempt: 2, retry_in: 4 } });
  live.read("model_call_ended", event(5, { agent: "lead", call: 1 }));
  live.read("action_started", event(5, { agent: "lead", tool_name: "web_search", tool_call_id: "a" }));
  live.read("action_retried", event(6, { agent: "lead", tool_call_id: "a", reason: "busy", attempt: 2, retry_in: 1 }));
  live.read("turn_started", event(6, { agent: "writer" }));
  const [search] = live.agents.get("lead").work.values();
  assert.deepEqual([search.name, search.retry.reason], ["web_search", "busy"]);
  assert.equal(live.agents.get("writer").since, BEGIN + 6000);
  for (const agent of ["lead", "writer"]) live.read("turn_ended", event(70, { agent }));
  assert.equal(live.isIdle, true);
});

test("the answer is what its pieces say, and begins again with the next attempt", () => {
  const live = new Live();
  const piece = (delta, kind = "answer") => live.read("text_delta", event(1, { agent: "lead", call: 1, kind, delta }));
  live.read("model_call_started", event(0, { agent: "lead", model: "m", call: 1 }));
  piece("Hmm", "reasoning");
  piece("Gold ");
  piece("was");
  assert.deepEqual(live.writing, [{ from: "lead", to: "user", text: "Gold was" }]);
  live.read("model_call_retried", event(2, { agent: "lead", call: 1, reason: "cut", attempt: 2, retry_in: 0 }));
  assert.deepEqual(live.writing, []);
});

test("plain text is an answer to whom it will go, until an action shows that it was none", () => {
  const live = new Live();
  const piece = (agent, delta, to) => live.read("text_delta", event(1, { agent, call: 1, kind: "text", delta, ...(to && { to }) }));
  for (const agent of ["lead", "searcher", "critic"]) live.read("model_call_started", event(0, { agent, model: "m", call: 1 }));
  piece("lead", "## Gold", "user");
  piece("searcher", "See", "lead");
  piece("searcher", " here", "lead");
  piece("critic", "A remark");
  assert.deepEqual(live.writing, [
    { from: "lead", to: "user", text: "## Gold" },
    { from: "searcher", to: "lead", text: "See here" },
  ]);
  live.read("action_started", event(2, { agent: "lead", tool_name: "look", tool_call_id: "l" }));
  assert.deepEqual(live.writing.map(({ from }) => from), ["searcher"]);
});

test("live events have no id, and are no pings", () => {
  assert.equal(isLive({ event: "turn_started", id: null }), true);
  assert.equal(isLive({ event: "ping", id: null }), false);
  assert.equal(isLive({ event: "new_message", id: "1" }), false);
});
