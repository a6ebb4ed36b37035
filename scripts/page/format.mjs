// Formats the scripts of the web page with prettier, or (--check) names the files that differ from that; either way, lines over 120 characters.
//
// Prettier formats html`` templates as HTML, whose rules for tags and white space differ from those of htm:
// - `<${Button}>…</${Button}>` are tags. Prettier gets `<c-Button_>…</c-Button_>`, which is as long.
// - Space beside a tag or an expression is lost if it has a line end. Prettier gets a character in place of a space that
//   counts, which becomes `${" "}` if a line ends there; and a tag in place of a line end that must not become a space.

import { glob, readFile, writeFile } from "node:fs/promises";
import { createRequire } from "node:module";
import { fileURLToPath } from "node:url";

const ROOT = new URL("../../", import.meta.url);
const tools = createRequire(new URL(".tools/page/package.json", ROOT));
process.env.PRETTIER_DEBUG = "1"; // a template that is not well-formed is an error
const prettier = tools("prettier");
const espree = tools("espree");

const WIDTH = 120;
const OPTIONS = { printWidth: WIDTH, htmlWhitespaceSensitivity: "ignore", bracketSameLine: true, objectWrap: "collapse" };
const SPACE = "\uE000";
const LINE = "<c-line_ />";

/** Return the nodes of a syntax tree that are html`` templates. */
function* templatesIn(node) {
  if (Array.isArray(node)) for (const each of node) yield* templatesIn(each);
  else if (node?.type) {
    if (node.type === "TaggedTemplateExpression" && node.tag.name === "html") yield node.quasi;
    for (const each of Object.values(node)) if (each && typeof each === "object") yield* templatesIn(each);
  }
}

/** Return the text of a template between two expressions, with marks for its white space; and whether it ends in a tag. */
function markSpaces(text, isInTag) {
  const parts = text.split(/([<>])/);
  const marked = parts.map((part, n) => {
    if (part === "<" || part === ">") isInTag = part === "<";
    else if (!isInTag) {
      const isBeside = { begin: n === 0, end: n === parts.length - 1 };
      return part
        .replace(/^\s+|\s+$/g, (found) => (found.includes("\n") ? found : SPACE.repeat(found.length)))
        .replace(/^\s+(?=\S|$)/, (found) => (isBeside.begin && (isBeside.end || part.trim()) ? LINE : found))
        .replace(/(?<=[^\s>])\s+$/, (found) => (isBeside.end ? LINE : found));
    }
    return part;
  });
  return [marked.join(""), isInTag];
}

/** Return JavaScript as prettier gets it. */
function prepare(source) {
  const tree = espree.parse(source, { ecmaVersion: "latest", sourceType: "module", range: true });
  const edits = [];
  for (const { quasis } of templatesIn(tree)) {
    let isInTag = false;
    for (const { range, value } of quasis) {
      let text;
      [text, isInTag] = markSpaces(value.raw, isInTag);
      edits.push([source.indexOf(value.raw, range[0]), value.raw.length, text]);
    }
  }
  for (const [begin, length, text] of edits.sort(([a], [b]) => b - a)) {
    source = source.slice(0, begin) + text + source.slice(begin + length);
  }
  return source.replace(/\$\{" "\}/g, SPACE).replace(/(<\/?)\$\{(\w+)\}/g, "$1c-$2_");
}

/** Return formatted JavaScript as htm reads it. */
function restore(source) {
  return source
    .replaceAll(new RegExp(` *${LINE}\n|${LINE}`, "g"), "")
    .replace(/(<\/?)c-(\w+?)_(?=[\s/>])/g, "$1${$2}")
    .replaceAll(new RegExp(`(?<=\n *)${SPACE}|${SPACE}(?=\n)`, "g"), '${" "}')
    .replaceAll(SPACE, " ");
}

/** Return JavaScript with templates of one line in the line where they begin, if that is not too long then. */
function join(source) {
  return source.replace(/^(.*html`)\n *(.*)\n *(`.*)$/gm, (found, before, content, after) => {
    const isWhole = content.split("`").length % 2 === 1;
    return isWhole && (before + content + after).length <= WIDTH ? before + content + after : found;
  });
}

async function format(source, path) {
  const options = { ...OPTIONS, filepath: path };
  let formatted = restore(await prettier.format(prepare(source), options));
  for (let joined = join(formatted); joined !== formatted; joined = join(formatted)) {
    formatted = await prettier.format(joined, { ...options, embeddedLanguageFormatting: "off" });
  }
  return formatted;
}

const isCheck = process.argv.includes("--check");
let problems = 0;
const report = (text) => {
  problems += 1;
  console.error(text);
};
for await (const file of glob("src/mail/http/ui/**/*.js", { cwd: fileURLToPath(ROOT) })) {
  if (file.includes("vendor")) continue;
  const path = fileURLToPath(new URL(file, ROOT));
  const source = await readFile(path, "utf8");
  let formatted;
  try {
    formatted = await format(source, path);
  } catch (error) {
    report(`${file}: ${error.message}`);
    continue;
  }
  if (isCheck && formatted !== source) report(`${file} is not formatted: python3 scripts/dev.py lint --fix`);
  else if (formatted !== source) await writeFile(path, formatted);
  formatted.split("\n").forEach((line, n) => {
    if (line.length > WIDTH) report(`${file}:${n + 1} has ${line.length} characters`);
  });
}
process.exitCode = problems ? 1 : 0;
