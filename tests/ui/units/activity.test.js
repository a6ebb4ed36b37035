import assert from "node:assert/strict";
import { test } from "node:test";
import { Activity } from "./ui/graph/activity.js";
import { CALLER, edgeKey } from "./ui/graph/model.js";

const swarm = { name: "here", agents: [{ name: "supervisor" }, { name: "weather" }] };

let seq = 0;
const item = (kind, facts) => ({ kind, seq: ++seq, time: "2026-01-31T10:00:00Z", ...facts });
const mail = (type, sender, to, text, facts) => item("mail", { type, sender, recipients: [to], subject: "Hello", text, ...facts });

const ITEMS = [
  item("message", { type: "request", who: "ann", recipients: ["supervisor"], subject: "Hello", text: "Oslo?" }), // 1
  item("work", {}),
  mail("request", "supervisor", "weather@here", "Oslo?", { reasoning: "It knows.", said: "" }), // 3
  item("action", { agent: "weather", name: "look", arguments: { city: "Oslo" }, result: "sunny", seconds: 0.2, has_failed: false }),
  item("note", { agent: "", name: "tool call error", text: "Try again.", recipients: ["weather"] }), // 5
  mail("response", "weather", "supervisor", "Sunny."),
  mail("request", "supervisor", "sage@far", "Sure?"), // 7
  mail("response", "sage@far", "supervisor", "Sure."),
  mail("broadcast", "supervisor", "all", "Done."), // 9
  item("answer", { who: "supervisor", text: "Sunny." }),
];

test("mail is counted for each pair of agents, in both directions", () => {
  const activity = new Activity(swarm).read(ITEMS);
  const counts = [...activity.edges.values()].map(({ from, to, count, forth, back, seq: last }) => [from, to, count, forth, back, last]);
  assert.deepEqual(counts, [
    [CALLER, "supervisor", 2, 1, 1, 10],
    ["supervisor", "weather", 2, 1, 1, 6],
    ["supervisor", "sage@far", 2, 1, 1, 8],
  ]);
  assert.deepEqual(activity.last, [edgeKey(CALLER, "supervisor")]);
  assert.equal(activity.mail.length, 6);
});

test("an agent's history has its mail, and its calls with their results", () => {
  const { entries, sent, received, actions } = new Activity(swarm).read(ITEMS).of("weather");
  assert.deepEqual([sent, received, actions], [1, 2, 1]);
  assert.deepEqual(entries.map(({ kind, other, result }) => [kind, other ?? result]), [
    ["received", "supervisor"], ["call", "sunny"], ["received", "system"], ["sent", "supervisor"],
  ]);
  const asked = new Activity(swarm).read(ITEMS).of("supervisor").entries[1];
  assert.deepEqual([asked.kind, asked.other, asked.reasoning], ["sent", "weather", "It knows."]);
});

test("items are read once, up to the chosen moment", () => {
  const activity = new Activity(swarm);
  const items = ITEMS.slice(0, 3);
  activity.read(items);
  items.push(...ITEMS.slice(3));
  activity.read(items);
  assert.equal(activity.edges.get(edgeKey(CALLER, "supervisor")).count, 2);
  assert.deepEqual(new Activity(swarm).read(ITEMS, 3).last, [edgeKey("supervisor", "weather")]);
});
