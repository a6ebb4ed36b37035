import assert from "node:assert/strict";
import { test } from "node:test";

import { piecesOf } from "./ui/components/colours.js";

const kinds = (text, language) => piecesOf(text, language).filter(([kind]) => kind);

test("words and signs of a language have their colours", () => {
  assert.deepEqual(kinds('def f():  # why "so"\n    return 18 + "a#b"', "python"), [
    ["keyword", "def"],
    ["comment", '# why "so"'],
    ["keyword", "return"],
    ["number", "18"],
    ["string", '"a#b"'],
  ]);
  assert.deepEqual(kinds("let url = `http://${x}`; // hi", "js title=x"), [
    ["keyword", "let"],
    ["string", "`http://${x}`"],
    ["comment", "// hi"],
  ]);
  assert.deepEqual(kinds('{"a": [1, null], "b": "//x"}', "JSON").map(([, text]) => text), ['"a"', "1", "null", '"b"', '"//x"']);
  assert.deepEqual(kinds("curl http://x#y # then\n", "sh"), [["comment", "# then"]]);
  assert.deepEqual(kinds("SELECT 1 -- one", "sql"), [["keyword", "SELECT"], ["number", "1"], ["comment", "-- one"]]);
  assert.deepEqual(piecesOf("+ a\n- b\n", "diff"), [["string", "+ a\n"], ["removed", "- b\n"]]);
});

test("nothing of a text is lost or doubled", () => {
  const text = "/* open\n'x \\' `y` 0x1F 1.5e-3 §é🙂 \"";
  for (const language of ["c", "python", "sh", "sql", "yaml", "html", "diff"])
    assert.equal(piecesOf(text, language).map(([, piece]) => piece).join(""), text, language);
});

test("other languages and long texts stay plain", () => {
  assert.equal(piecesOf("x", "brainfuck"), null);
  assert.equal(piecesOf("x", "constructor"), null);
  assert.equal(piecesOf("x".repeat(50_001), "js"), null);
});
