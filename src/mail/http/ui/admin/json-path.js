// Where a path such as `agents.0.name` is in a JSON text. Pure, for tests in node.

const TOKEN = /"(?:[^"\\]|\\.)*"|[{}[\],:]|[^\s{}[\],:"]+/g;

/**
 * Return `[start, end]` of the key (in a list: the beginning of the value) that a path names; null if it is not
 * there.
 */
export function locate(text, path) {
  const wanted = path.split(".");
  const open = []; // of each object or list around: {isList, key}
  let last = null; // the string before a colon
  const isHere = () => open.length === wanted.length && open.every(({ key }, depth) => String(key) === wanted[depth]);
  for (const found of text.matchAll(TOKEN)) {
    const [token] = found;
    const span = [found.index, found.index + token.length];
    const around = open.at(-1);
    if (token === ":" && around && !around.isList && last) {
      around.key = last.key;
      if (isHere()) return last.span;
      continue;
    }
    if (token === ",") {
      if (around?.isList) around.key += 1;
      continue;
    }
    if (around?.isList && token !== "]" && isHere()) return span;
    last = token.startsWith('"') ? { key: read(token), span } : null;
    if (token === "{" || token === "[") open.push({ isList: token === "[", key: token === "[" ? 0 : null });
    else if (token === "}" || token === "]") open.pop();
  }
  return null;
}

function read(string) {
  try {
    return JSON.parse(string);
  } catch {
    return string;
  }
}
