// Who asked whom: each message from outside is a root; below a message stands the turn that read it, and below that
// what it sent.

import { envelopeOf, isFromPerson, recipientNames } from "../api/messages.js";
import { oneLine } from "./entries.js";

/** Nodes are indented so many levels at most. */
const DEEPEST = 24;

/**
 * Return the nodes of the tree in order: `{id, seq, level, kind, who, whom, text, begin, end, status, usage, children}`.
 *
 * A node is a message between two participants, with the turn that read it, if there is one. `spans` and `events` are those
 * of the task.
 */
export function readTree(events, spans) {
  const turns = spans.filter(({ kind }) => kind === "turn");
  const reading = new Map(turns.filter(({ reads }) => reads !== null).map((turn) => [turn.reads, turn]));
  const owners = ownersOf(turns);
  const nodes = new Map(); // by the seq of their message
  const roots = [];
  const requests = new Map();
  for (const event of events) {
    const message = envelopeOf(event);
    if (!message) continue;
    const isFromSystem = message.message.sender.address_type === "system";
    const turn = owners.get(event.seq) ?? null;
    const cause = turn ? (nodes.get(turn.reads) ?? null) : null;
    const answered = message.msg_type === "response" ? (requests.get(message.message.request_id) ?? null) : null;
    const read = reading.get(event.seq) ?? null;
    if (isFromSystem && cause && !isNotable(message)) {
      // A note of the system to the agent itself, such as an action's result: its turn continues the one that caused it.
      nodes.set(event.seq, cause);
      if (read) extend(cause, read);
      continue;
    }
    const isAnswer = message.msg_type === "broadcast_complete";
    const asked = roots.findLast(({ isFromOutside }) => isFromOutside);
    const parent = isAnswer ? (asked ?? null) : (answered ?? cause);
    const node = {
      id: `message ${event.seq}`,
      seq: event.seq,
      kind: isAnswer ? "response" : message.msg_type,
      who: isFromSystem ? "system" : message.message.sender.address,
      whom: isAnswer && asked ? asked.who : recipientNames(message).join(", "),
      isFromOutside: isFromPerson(message),
      isFromSystem,
      text: oneLine(message.message.body || message.message.subject),
      turns: [],
      begin: Date.parse(event.data.timestamp),
      end: null,
      status: "ok",
      level: parent ? Math.min(DEEPEST, parent.level + 1) : 0,
      children: [],
    };
    if (read) extend(node, read);
    (parent?.children ?? roots).push(node);
    nodes.set(event.seq, node);
    if (message.msg_type === "request") requests.set(message.message.request_id, node);
  }
  return roots;
}

/** Whether a message of the system says more than what its agent has done. */
const isNotable = ({ message }) => /error|maximum|cancel|timeout/i.test(message.subject);

function extend(node, turn) {
  node.turns.push(turn);
  node.end = turn.end;
  if (turn.status !== "ok") node.status = turn.status;
}

function ownersOf(turns) {
  const owners = new Map();
  for (const turn of turns) if (turn.first !== null) for (let seq = turn.first; seq <= turn.last; seq += 1) owners.set(seq, turn);
  return owners;
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
