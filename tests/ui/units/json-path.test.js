import assert from "node:assert/strict";
import { test } from "node:test";

import { locate } from "./ui/admin/json-path.js";

const TEXT = JSON.stringify({ name: "a:{b", agents: [{ name: "x", tools: ["t", { "k.e\"y": 1 }] }, { name: "y", params: { deep: [[1, 2], [3]] } }], end: null }, null, 2);
const at = (path) => {
  const span = locate(TEXT, path);
  return span && TEXT.slice(...span);
};

test("a path leads to its key, or to an item of a list", () => {
  assert.equal(at("name"), '"name"');
  assert.equal(locate(TEXT, "agents.1.name")[0], TEXT.lastIndexOf('"name"'));
  assert.equal(at("agents.0.tools.0"), '"t"');
  assert.equal(at("agents.0.tools.1"), "{");
  assert.equal(at("agents.1.params.deep.1.0"), "3");
  assert.equal(at("end"), '"end"');
});

test("what is not there is not found", () => {
  for (const path of ["", "names", "agents.2", "agents.0.name.x", "agents.0.tools.2", "t"]) assert.equal(locate(TEXT, path), null, path);
  for (const text of ["", "{", '{"a": ', "[[[", '"']) assert.equal(locate(text, "a.0"), null);
});
