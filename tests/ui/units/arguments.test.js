import assert from "node:assert/strict";
import { test } from "node:test";

import { exactJson } from "./ui/components/exact.js";
import { changesOf, fieldsOf, readForm, shownAs } from "./ui/conversation/arguments-form.js";

const PARAMETERS = {
  properties: {
    to: { type: "string" },
    amount: { type: "integer" },
    mode: { enum: ["slow", "fast"] },
    loud: { type: "boolean" },
    tags: { type: "array" },
  },
  required: ["to", "amount"],
};
const ARGUMENTS = exactJson('{"to": "bob", "amount": 12345678901234567890, "more": "\\u202ex"}');
const FIELDS = fieldsOf(PARAMETERS, ARGUMENTS);
const TYPED = Object.fromEntries(FIELDS.map(({ name, kind }) => [name, shownAs(kind, ARGUMENTS[name])]));

const read = (typed) => readForm(FIELDS, { ...TYPED, ...typed }, ARGUMENTS);

test("fields are those of the schema, then what the call has besides", () => {
  assert.deepEqual(
    FIELDS.map(({ name, kind, isRequired }) => [name, kind, isRequired]),
    [
      ["to", "text", true],
      ["amount", "integer", true],
      ["mode", "choice", false],
      ["loud", "boolean", false],
      ["tags", "json", false],
      ["more", "json", true],
    ],
  );
  assert.equal(TYPED.more, '"\\u202ex"', "nothing is hidden");
});

test("what is not changed stays exactly as it was", () => {
  assert.equal(read({}), '{"to": "bob", "amount": 12345678901234567890, "more": "\u202ex"}');
  assert.deepEqual(changesOf(ARGUMENTS, exactJson(read({}))), []);
});

test("what is typed becomes JSON by its kind", () => {
  const typed = { to: 'e"ve', amount: " 5 ", mode: "fast", loud: "false", tags: '["a", 1]', more: "null" };
  assert.deepEqual(JSON.parse(read(typed)), { to: 'e"ve', amount: 5, mode: "fast", loud: false, tags: ["a", 1], more: null });
  assert.deepEqual(changesOf({ a: 1, b: "x" }, { a: 2, c: true }), [
    { name: "a", before: "1", after: "2" },
    { name: "b", before: '"x"', after: "" },
    { name: "c", before: "", after: "true" },
  ]);
});

test("what can't be read is refused with its name", () => {
  for (const [typed, problem] of [
    [{ amount: "" }, "amount must be a whole number."],
    [{ amount: "5.5" }, "amount must be a whole number."],
    [{ amount: "0x10" }, "amount must be a whole number."],
    [{ tags: "[" }, "tags is not valid JSON."],
  ])
    assert.throws(() => read(typed), { message: problem });
});
