import assert from "node:assert/strict";
import { test } from "node:test";
import { Working, isLive } from "./ui/live.js";

test("a line says who works on what, for how long, and why it takes long", () => {
  const working = new Working();
  working.read("turn_started", { agent: "lead" }, 0);
  assert.equal(working.line(3_000), "lead, 3 s");
  working.read("model_call_started", { agent: "lead", model: "openai/gpt", call: 1 }, 1_000);
  working.read("model_call_retried", { agent: "lead", call: 1, reason: "rate limit", attempt: 2, retry_in: 4 }, 2_000);
  assert.equal(working.line(4_000), "lead: openai/gpt, 3 s (rate limit, attempt 2 after 4 s)");
  working.read("model_call_ended", { agent: "lead", call: 1 }, 5_000);
  working.read("action_started", { agent: "lead", tool_name: "web_search", tool_call_id: "a" }, 5_000);
  working.read("turn_started", { agent: "writer" }, 5_000);
  assert.equal(working.line(70_000), "lead: web_search, 1 min 5 s · writer, 1 min 5 s");
  working.read("turn_ended", { agent: "lead" }, 70_000);
  working.read("turn_ended", { agent: "writer" }, 70_000);
  assert.equal(working.line(70_000), "");
});

test("live events have no id, and are no pings", () => {
  assert.equal(isLive({ event: "turn_started", id: null }), true);
  assert.equal(isLive({ event: "ping", id: null }), false);
  assert.equal(isLive({ event: "new_message", id: "1" }), false);
});
