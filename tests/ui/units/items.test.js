import assert from "node:assert/strict";
import { test } from "node:test";

import { errorsOf, Items, jsonOf, summary } from "./ui/conversation/items.js";

const work = { kind: "work", id: "1.1", version: 1, agents: [], turns: 0 };
const mail = (id, sender, recipients, type = "request") => ({ kind: "mail", id, version: Number.parseInt(id, 10), work: "1.1", sender, recipients, type });
const action = (id, facts = {}) => ({ kind: "action", id, version: Number.parseInt(id, 10), work: "1.1", name: "look", ...facts });

test("steps belong to their work, which changes with them", () => {
  const items = new Items().with([{ kind: "message", id: "1.0", version: 1 }, work, mail("2.0", "lead", ["a"]), { kind: "answer", id: "3.0", version: 3 }]);
  assert.deepEqual(items.shown.map(({ kind }) => kind), ["message", "work", "answer"]);
  assert.deepEqual([items.shown[1].version, items.shown[1].steps.map(({ id }) => id)], [2, ["2.0"]]);
});

test("what a guard objects to is beside the work, other notes are in the trace", () => {
  const note = (id, name) => ({ kind: "note", id, version: 2, work: "1.1", name, text: "refused" });
  const items = new Items().with([work, note("2.0", "guard_decision"), note("2.1", "action_timeout")]);
  assert.deepEqual([items.shown.map(({ id }) => id), items.shown[0].steps], [["1.1", "2.0"], []]);
});

test("an item replaces an older one, and keeps its place and its steps", () => {
  const items = new Items().with([work, action("2.0"), { ...work, version: 5, turns: 2 }, { ...work, version: 4, turns: 1 }]);
  assert.deepEqual([items.shown.length, items.shown[0].turns, items.shown[0].steps.length], [1, 2, 1]);
});

test("what was done, in a line", () => {
  const said = (agents, ...steps) => summary({ agents, steps });
  assert.equal(said(["lead", "a", "b"], mail("2.0", "lead", ["a"]), mail("3.0", "lead", ["b"]), mail("4.0", "a", ["lead"], "response")), "lead asked a and b");
  assert.equal(said(["lead", "a"], mail("2.0", "lead", ["a"]), mail("3.0", "a", ["lead"])), "lead and a worked together");
  assert.equal(said(["lead"], action("2.0"), action("3.0")), "lead used look");
  assert.equal(said(["lead"]), "lead worked");
});

test("errors, without the one that ended the task", () => {
  const fault = { kind: "fault", id: "4.0", version: 4, work: "1.1" };
  assert.equal(errorsOf([action("2.0"), action("3.0", { has_failed: true }), fault, { ...fault, ended_task: true }]).length, 2);
});

test("answers that are JSON", () => {
  assert.deepEqual(jsonOf('{"a": 1}'), { a: 1 });
  assert.equal(jsonOf("{not json"), undefined);
  assert.equal(jsonOf("84"), undefined);
});
