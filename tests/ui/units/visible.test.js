import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import test from "node:test";

import { exactJson, sha256 } from "./ui/components/exact.js";
import { partsOf } from "./ui/components/markdown.js";
import { visible } from "./ui/components/visible.js";

test("what is hidden in a text is shown, as in a terminal", () => {
  for (const [text, shown] of JSON.parse(readFileSync("visible.cases.json", "utf8"))) {
    assert.equal(visible(text), shown);
    assert.equal(visible(shown), shown);
    if (!/[\u0000-\u001f]/.test(text)) assert.deepEqual(JSON.parse(visible(JSON.stringify([text]))), [text]);
  }
});

test("the digest of arguments", async () => {
  const { createHash } = await import("node:crypto");
  for (const text of ["", "abc", '{"a": "\\u202e"}', "x".repeat(55), "y".repeat(56), "z".repeat(64), "w".repeat(1000)]) {
    assert.equal(sha256(text), createHash("sha256").update(text).digest("hex"));
  }
});

test("numbers that JavaScript would change", () => {
  const text = '{"to":12345678901234567,"amount":1.5,"n":[-7,1e400]}';
  assert.equal(JSON.stringify(exactJson(text)), text);
  assert.equal(exactJson(text).amount, 1.5);
});

test("how much Markdown is parsed, and at once", () => {
  const kinds = (text) => partsOf(text).map(({ isPlain }) => (isPlain ? "plain" : "parsed")).join();
  for (const text of ["> ".repeat(3000), "- ".repeat(3000), "a.".repeat(60000) + "@", "[ ".repeat(60000)]) {
    assert.equal(kinds(text), "plain");
    assert.equal(kinds(`before\n${text}\nafter`), "parsed,plain,parsed");
  }
  const code = `\`\`\`\n${"a.".repeat(60000)}\n\`\`\`\n`;
  assert.equal(kinds(code), "parsed");
  assert.equal(kinds("a paragraph of some words\n\n".repeat(600)), "parsed,parsed,parsed");
  const long = "words\n".repeat(50000);
  assert.equal(partsOf(long).map(({ text }) => text).join(""), long);
  assert.equal(partsOf(long).at(-1).isPlain, true);
});
