import assert from "node:assert/strict";
import { test } from "node:test";

import { elapsed, readEvent } from "./ui/events.js";
import { edges, layers } from "./ui/graph.js";

const letter = (address_type, msg_type, recipients) => ({
  event: "new_message",
  id: "1",
  data: {
    timestamp: "2026-01-01T00:00:00Z",
    extra_data: {
      full_message: { msg_type, message: { sender: { address_type, address: "s" }, subject: "S", body: "B", ...recipients } },
    },
  },
});

test("the priority follows from sender and type", () => {
  const one = { recipient: { address: "a" } };
  const tier = (sender, type) => readEvent(letter(sender, type, one)).tier;
  assert.deepEqual(
    [["system", "interrupt"], ["user", "request"], ["admin", "interrupt"], ["agent", "interrupt"], ["agent", "broadcast_complete"], ["agent", "broadcast"], ["agent", "request"], ["agent", "response"]].map((pair) => tier(...pair)),
    [1, 2, 2, 3, 3, 4, 5, 5],
  );
});

test("a message, to one or to many", () => {
  const many = readEvent(letter("agent", "broadcast", { recipients: [{ address: "a" }, { address: "b" }] }));
  assert.deepEqual([many.who, many.whom, many.subject, many.text], ["s", ["a", "b"], "S", "B"]);
});

test("a tool call, with what can be opened", () => {
  const extra_data = { agent: "math", tool_name: "t", tool_args: { x: 1 }, tool_call_id: "c", reasoning: "since", preamble: "so" };
  const line = readEvent({ event: "tool_call", id: "2", data: { description: "agent math called t", extra_data } });
  assert.deepEqual([line.who, line.text, line.call], ["math", "t", "c"]);
  assert.deepEqual(line.parts.map(([title]) => title), ["Said", "Reasoning", "Tool call"]);
});

test("any other event, as it says it itself", () => {
  const event = { event: "action_complete", id: "3", data: { description: "action complete (caller = w):\n84", extra_data: { agent: "w" } } };
  const line = readEvent(event);
  assert.deepEqual([line.who, line.text], ["w", "action complete (caller = w):\n84"]);
});

test("the end", () => {
  const line = readEvent({ event: "task_error", id: "9", data: { response: "out of steps" } });
  assert.equal(line.terminal, true);
  assert.equal(line.text, "out of steps");
});

test("time", () => {
  assert.equal(elapsed("2026-01-01T00:00:00Z", "2026-01-01T00:00:01.5Z"), "+1.50 s");
  assert.equal(elapsed("2026-01-01T00:00:00Z", "2026-01-01T00:02:03Z"), "+2 min 3 s");
  assert.equal(elapsed("", "?"), "");
});

const agent = (name, ...comm_targets) => ({ name, comm_targets });

test("layers below the entrypoint: remote ones and lost ones are there, loops end", () => {
  const swarm = { entrypoint: "s", agents: [agent("a", "s", "b"), agent("s", "a", "x@other"), agent("b"), agent("lost", "s")] };
  assert.deepEqual(layers(swarm), [["s"], ["a", "x@other"], ["b"], ["lost"]]);
  assert.deepEqual(edges(swarm), [
    { from: "a", to: "s", both: true },
    { from: "a", to: "b", both: false },
    { from: "s", to: "x@other", both: false },
    { from: "lost", to: "s", both: false },
  ]);
});
