// The rows of the waterfall: turns, what they do, waits, messages and ends. Times are milliseconds since 1970.

import { agentOf } from "../components/agent.js";
import { oneLine } from "./entries.js";

/** Milliseconds that a wait lasts at least to be shown. */
const NOTABLE_WAIT = 100;

/** What a row says, by the kind of its item. */
const ROWS = {
  message: ({ who, recipients, text }) => ({
    name: `${who} writes to ${recipients.join(", ")}`,
    snippet: oneLine(text),
  }),
  turn: ({ did, state, last, queued, is_timed }) => ({
    name: did,
    status: state,
    last,
    queued: queued && Date.parse(queued),
    isTimed: is_timed,
  }),
  model_call: ({ model, attempts, seq }) => ({ kind: "model", name: model, attempts, last: seq, events: [] }),
  action: ({ name, has_failed, version }) => ({ name, status: has_failed ? "failed" : "ok", last: version }),
  wait: ({ names, seconds }) => ({
    name: `waits for ${names.join(", ") || "you"}`,
    status: seconds === null ? "waiting" : "ok",
    isForYou: !names.length,
    events: [],
  }),
  answer: ({ text }) => ({ kind: "end", name: "the answer", snippet: oneLine(text) }),
  failed: ({ text }) => ({
    kind: "end",
    name: "the task ends without an answer",
    status: "failed",
    snippet: oneLine(text),
  }),
  cancelled: () => ({ kind: "end", name: "the task is cancelled", status: "discarded" }),
  fault: ({ agent, text }) => (agent ? null : { kind: "end", name: text, status: "failed" }),
};

function rowOf(item, events, turns) {
  const facts = ROWS[item.kind]?.(item);
  if (!facts) return null;
  const begin = Date.parse(item.time);
  const lasts = "seconds" in item;
  const row = {
    id: item.id,
    kind: item.kind,
    agent: lasts ? item.agent : null,
    status: "ok",
    usage: item.usage ?? null,
    parent: item.turn ?? null,
    first: item.seq,
    last: item.seq,
    begin,
    ...facts,
  };
  row.end = item.kind === "wait" && item.seconds === null ? null : begin + (item.seconds ?? 0) * 1000;
  const zero = events[0]?.seq; // of a shared task, only the items are known
  row.events ??= events.slice(row.first - zero, row.last - zero + 1);
  if (row.parent) row.within = turns.get(row.parent);
  return row;
}

/** Return the rows of what agents do now: their turns, and the model calls and actions in these. */
function runningRows(live) {
  const open = { end: null, status: "running", usage: null, first: null, last: null, events: [] };
  return [...live].flatMap(([agent, { since, work }]) => {
    const turn = {
      ...open,
      id: `live ${agent}`,
      kind: "turn",
      agent,
      name: "is working",
      begin: since,
      parent: null,
      queued: null,
      isTimed: true,
    };
    const inner = [...work].map(([key, { kind, name, since: begin, retry }]) => ({
      ...open,
      id: `live ${agent} ${key}`,
      kind,
      agent,
      name,
      begin,
      parent: turn.id,
      attempts: retry?.attempt ?? 1,
      retry,
    }));
    return [turn, ...inner];
  });
}

/** Return the names, each once, with the copies of an agent behind each other. */
function withCopies(names) {
  const agents = [...new Set(names.map(agentOf))];
  return [...new Set(names)].sort(
    (a, b) => agents.indexOf(agentOf(a)) - agents.indexOf(agentOf(b)) || a.length - b.length || (a < b ? -1 : 1),
  );
}

/**
 * Return `{spans, begin, end, agents}`: the rows in their order, and the agents in the order in which they appear,
 * each with its copies.
 *
 * A row has `id`, `kind` ("message", "turn", "model", "action", "wait" or "end"), `agent`, `name`, `begin`, `end`
 * (null while it lasts), `status` ("ok", "failed", "running", "waiting" or "discarded"), the `first` and `last`
 * event, `usage` (or null), `parent` (the id of a turn, or null), and the `events` that it comes from. A turn has
 * `queued`: since when its message had waited; `isTimed`: whether the record says when it began; `model`: that of its
 * model call if it has one call, which has no row of its own. What a turn does has it as `within`.
 *
 * `items` are those of the task (items.js); `live` are the agents that work now, as `session.live.agents`; `status`
 * is the task's.
 */
export function readSpans(items, events, { live = new Map(), status = "completed" } = {}) {
  const turns = new Map();
  const inner = new Map(); // rows by their turn
  const rows = [];
  for (const item of items) {
    const row = rowOf(item, events, turns);
    if (!row) continue;
    if (row.kind === "turn") turns.set(row.id, row);
    if (!row.parent) rows.push(row);
    else inner.set(row.parent, [...(inner.get(row.parent) ?? []), row]);
  }
  for (const [turn, row] of turns) {
    const calls = inner.get(turn)?.filter(({ kind }) => kind === "model") ?? [];
    if (calls.length !== 1) continue;
    const [{ name, attempts }] = calls; // its tokens, cost and time are those of the turn
    Object.assign(row, { model: name, snippet: attempts > 1 ? `${name}, ${attempts} attempts` : name });
    inner.set(
      turn,
      inner.get(turn).filter(({ kind }) => kind !== "model"),
    );
  }
  for (const row of rows)
    if (row.kind === "wait" && row.end === null && live.has(row.agent))
      Object.assign(row, { end: Math.max(row.begin, live.get(row.agent).since), status: "ok" });
  const isShown = ({ kind, begin, end, isForYou }) =>
    kind !== "wait" ||
    (end === null ? status === (isForYou ? "paused" : "running") : end - begin >= NOTABLE_WAIT || isForYou);
  const spans = [...rows.filter(isShown).flatMap((row) => [row, ...(inner.get(row.id) ?? [])]), ...runningRows(live)];
  const begins = spans.map((span) => span.queued ?? span.begin);
  const begin = begins.length ? begins.reduce((a, b) => Math.min(a, b)) : 0;
  return {
    spans,
    agents: withCopies(spans.filter(({ kind }) => kind === "turn").map(({ agent }) => agent)),
    begin,
    end: spans.reduce((end, span) => Math.max(end, span.end ?? span.begin), begin),
  };
}
