import assert from "node:assert/strict";
import { test } from "node:test";
import { Activity } from "./ui/graph/activity.js";
import { CALLER, edgeKey } from "./ui/graph/model.js";

const swarm = { name: "here", agents: [{ name: "supervisor" }, { name: "weather" }] };
const person = { address_type: "user", address: "ann" };
const agent = (address) => ({ address_type: "agent", address });
const system = { address_type: "system", address: "here" };

let seq = 0;
const event = (kind, extra, description = "") => ({ seq: ++seq, event: kind, data: { timestamp: "2026-01-31T10:00:00Z", description, extra_data: extra } });
const mail = (type, sender, to, body) =>
  event("new_message", { full_message: { msg_type: type, message: { sender, subject: "Hello", body, ...(Array.isArray(to) ? { recipients: to } : { recipient: to }) } } });

seq = 0;
const EVENTS = [
  mail("request", person, agent("supervisor"), "Oslo?"), // 1
  event("tool_call", { agent: "supervisor", tool_name: "send_request", tool_args: { target: "weather" }, tool_call_id: "c1", reasoning: "It knows." }),
  mail("request", agent("supervisor"), agent("weather@here"), "Oslo?"), // 3
  event("action_complete", { agent: "weather", seconds: 0.2 }, "action complete (caller = weather):\nsunny"),
  mail("broadcast", system, [agent("weather")], "sunny"), // 5
  mail("response", agent("weather"), agent("supervisor"), "Sunny."),
  mail("request", agent("supervisor"), agent("sage@far"), "Sure?"), // 7
  mail("broadcast_complete", agent("sage@far"), [agent("supervisor")], "Sure."),
  mail("broadcast", agent("supervisor"), [agent("all")], "Done."), // 9
  mail("broadcast_complete", agent("supervisor"), [agent("all")], "Sunny."),
];

test("mail is counted for each pair of agents, in both directions", () => {
  const activity = new Activity(swarm).read(EVENTS);
  const counts = [...activity.edges.values()].map(({ from, to, count, forth, back, seq: last }) => [from, to, count, forth, back, last]);
  assert.deepEqual(counts, [
    [CALLER, "supervisor", 2, 1, 1, 10],
    ["supervisor", "weather", 2, 1, 1, 6],
    ["supervisor", "sage@far", 2, 1, 1, 8],
  ]);
  assert.deepEqual(activity.last, [edgeKey(CALLER, "supervisor")]);
  assert.equal(activity.mail.length, 6);
});

test("an agent's history has its mail, its calls and their results", () => {
  const { entries, sent, received, calls } = new Activity(swarm).read(EVENTS).of("weather");
  assert.deepEqual([sent, received, calls], [1, 2, 0]);
  assert.deepEqual(entries.map(({ kind, other, text }) => [kind, other ?? text]), [
    ["received", "supervisor"], ["result", "sunny"], ["received", "system"], ["sent", "supervisor"],
  ]);
  const call = new Activity(swarm).read(EVENTS).of("supervisor").entries[1];
  assert.deepEqual([call.kind, call.name, call.arguments, call.reasoning], ["call", "send_request", { target: "weather" }, "It knows."]);
});

test("events are read once, up to the chosen moment", () => {
  const activity = new Activity(swarm);
  const events = EVENTS.slice(0, 3);
  activity.read(events);
  events.push(...EVENTS.slice(3));
  activity.read(events);
  assert.equal(activity.edges.get(edgeKey(CALLER, "supervisor")).count, 2);
  assert.deepEqual(new Activity(swarm).read(EVENTS, 3).last, [edgeKey("supervisor", "weather")]);
});
