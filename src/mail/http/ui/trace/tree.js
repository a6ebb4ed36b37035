// Who asked whom: each message of a person is a root; below a message stands what it led to, with the turns that read
// it.

import { oneLine } from "./entries.js";

/** Nodes are indented so many levels at most. */
const DEEPEST = 24;

/** Kinds of items that somebody has written. */
const WRITTEN = new Set(["message", "mail", "told", "answer"]);

/**
 * Return the nodes of the tree in order: `{id, seq, level, kind, who, whom, text, turns, status, children}`.
 *
 * A node is a message between two participants, with the turns that read it. `items` are those of the task
 * (items.js), `spans` their rows (spans.js).
 */
export function readTree(items, spans) {
  const rows = new Map(spans.map((span) => [span.id, span]));
  const nodes = new Map(); // by the seq of their message
  const roots = [];
  for (const item of items) {
    const cause = nodes.get(item.cause);
    if (item.kind === "turn" && cause) extend(cause, rows.get(item.id));
    if (!WRITTEN.has(item.kind)) continue;
    const isAnswer = item.kind === "answer";
    const asked = roots.findLast(({ isFromOutside }) => isFromOutside);
    const parent = isAnswer ? asked : cause;
    const node = {
      id: `message ${item.seq}`,
      seq: item.seq,
      kind: isAnswer ? "response" : item.type,
      who: item.sender ?? item.who,
      whom: isAnswer ? (asked?.who ?? "") : item.recipients.join(", "),
      isFromOutside: item.kind === "message",
      text: oneLine(item.text || item.subject || ""),
      turns: [],
      status: "ok",
      level: parent ? Math.min(DEEPEST, parent.level + 1) : 0,
      children: [],
    };
    (parent?.children ?? roots).push(node);
    nodes.set(item.seq, node);
  }
  return roots;
}

function extend(node, turn) {
  node.turns.push(turn);
  if (turn.status !== "ok") node.status = turn.status;
}

/** Return the nodes that are shown, from the top: those below a node in `closed` (ids) are left out. */
export function flatten(roots, closed = new Set()) {
  const shown = [];
  const visit = (node) => {
    shown.push(node);
    if (!closed.has(node.id)) node.children.forEach(visit);
  };
  roots.forEach(visit);
  return shown;
}
