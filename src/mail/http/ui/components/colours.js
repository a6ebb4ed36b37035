// Colours of code, by words and signs rather than by a grammar: enough to read an answer by. It comes with the first
// code.

const words = (text) => new Set(text.split(" "));

const C_LIKE = words(
  "abstract as async await bool break byte case catch char class const continue default defer delete do double else " +
    "enum export extends extern false final finally float fn for func function go goto if impl implements import in " +
    "instanceof int interface let long loop match mod mut namespace new nil null override package private protected " +
    "pub public return self short signed sizeof static string struct super switch this throw throws trait true try " +
    "type typedef typeof undefined union unsafe unsigned use using val var virtual void volatile where while yield",
);
const PYTHON = words(
  "and as assert async await break case class continue def del elif else except False finally for from global if " +
    "import in is lambda match None nonlocal not or pass raise return self True try type while with yield",
);
const SHELL = words(
  "case cd do done echo elif else esac exit export fi for function if in local return set source sudo then unset " +
    "until while",
);
const SQL = words(
  "all alter and as asc avg begin between by case coalesce commit count create delete desc distinct drop else end " +
    "exists from full group having if in index inner insert into is join key left like limit max min not null offset " +
    "on or order outer over partition primary references returning right rollback select set sum table then union " +
    "unique update using values view when where with",
);
const DATA = words("false no null off on true yes");
const NONE = new Set();

const STRING = String.raw`"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*'`;
const BLOCK = String.raw`\/\*[^]*?(?:\*\/|$)`;
const SLASHES = String.raw`\/\/.*|${BLOCK}`;
const HASH = "#.*";
const NUMBER = String.raw`\b(?:0[xXbBoO][\da-fA-F_]+|\d[\d_]*(?:\.\d+)?(?:[eE][+-]?\d+)?)\b`;

const NEVER = "(?!)";

const family = (comment, string, keywords, { ignoresCase = false, number = NUMBER } = {}) => ({
  pattern: new RegExp(
    `(?<comment>${comment})|(?<string>${string})|(?<number>${number})|(?<word>[A-Za-z_$][\\w$]*)`,
    "g",
  ),
  keywords,
  ignoresCase,
});

const FAMILIES = {
  c: family(SLASHES, `${STRING}|\`(?:[^\`\\\\]|\\\\.)*\``, C_LIKE),
  python: family(HASH, `"""[^]*?(?:"""|$)|'''[^]*?(?:'''|$)|${STRING}`, PYTHON),
  shell: family(`(?<![\\w$])${HASH}`, STRING, SHELL),
  sql: family(`--.*|${BLOCK}`, STRING, SQL, { ignoresCase: true }),
  data: family(`(?<!\\S)${HASH}|${BLOCK}`, STRING, DATA),
  markup: family("<!--[^]*?(?:-->|$)", String.raw`"[^"\n]*"|<\/?[\w:-]+|\/?>`, NONE, { number: NEVER }),
};

const NAMES = {
  c:
    "c c++ cc cpp cs csharp css dart go h hpp java javascript js jsx kotlin kt less mjs php rs rust scala scss swift " +
    "ts tsx typescript zig",
  python: "py python python3 pycon",
  shell: "bash console docker dockerfile fish makefile sh shell zsh",
  sql: "mysql plsql postgres postgresql sql sqlite",
  data: "ini json json5 jsonc toml yaml yml",
  markup: "htm html svg vue xml",
};
const FAMILY_OF = new Map(Object.entries(NAMES).flatMap(([id, names]) => names.split(" ").map((name) => [name, id])));

/** Characters of a text that are coloured; a longer one stays as it is. */
const MOST = 50_000;

const DIFF = { "+": "string", "-": "removed", "@": "number" };

function* ofDiff(text) {
  for (const line of text.split(/(?<=\n)/)) yield [DIFF[line[0]] ?? "", line];
}

/**
 * Return the pieces of a text in a language as pairs of a kind ("comment", "string", "number", "keyword", "removed", or
 * "" for the rest) and its text; null for a language that is not known, and for a long text.
 */
export function piecesOf(text, language) {
  const name = language
    .trim()
    .split(/[\s{,]/)[0]
    .toLowerCase();
  if (text.length > MOST) return null;
  if (name === "diff" || name === "patch") return [...ofDiff(text)];
  const { pattern, keywords, ignoresCase } = FAMILIES[FAMILY_OF.get(name)] ?? {};
  if (!pattern) return null;
  const pieces = [];
  let end = 0;
  for (const { 0: found, index, groups } of text.matchAll(pattern)) {
    const isKeyword = groups.word && keywords.has(ignoresCase ? found.toLowerCase() : found);
    const kind = isKeyword ? "keyword" : Object.keys(groups).find((each) => each !== "word" && groups[each]);
    if (!kind) continue;
    if (index > end) pieces.push(["", text.slice(end, index)]);
    pieces.push([kind, found]);
    end = index + found.length;
  }
  if (end < text.length) pieces.push(["", text.slice(end)]);
  return pieces;
}
