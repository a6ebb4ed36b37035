// Which spans and entries are shown: by agent, kind and text.

import { matcher } from "../components/words.js";
import { textOf } from "./entries.js";

export const KINDS = {
  turn: "Turns",
  model: "Model calls",
  action: "Actions",
  wait: "Waits",
  message: "Messages",
  problem: "Problems",
};

export const NO_FILTER = { agent: "", kind: "", text: "" };

export const isFiltered = ({ agent, kind, text }) => Boolean(agent || kind || text.trim());

/** Return the spans that match; a turn stays with the model call or action in it that matches. */
export function filterSpans(spans, { agent, kind, text }) {
  const has = matcher(text);
  const matches = (span) =>
    (!agent || span.agent === agent) &&
    (!kind ||
      (kind === "problem"
        ? span.status === "failed" || span.status === "discarded"
        : kind === "message"
          ? span.kind === "message" || span.kind === "end"
          : span.kind === kind || (kind === "model" && span.model))) &&
    (!text.trim() || has([span.agent ?? "", span.name, span.model ?? "", ...span.events.map(textOf)].join("\n")));
  if (!isFiltered({ agent, kind, text })) return spans;
  const found = spans.filter(matches);
  const parents = new Set(found.map(({ parent }) => parent));
  const ids = new Set(found.map(({ id }) => id));
  // A text that occurs in a turn shows all of it: its calls say too little by themselves.
  return spans.filter((span) => ids.has(span.id) || parents.has(span.id) || (!kind && ids.has(span.parent)));
}

const ENTRY_KINDS = {
  turn: () => true,
  model: ({ event }) => event.data.extra_data?.timing?.model_calls,
  action: ({ kind }) => kind.startsWith("action_") || kind === "tool_call",
  wait: ({ kind }) => kind === "await_message" || kind.startsWith("breakpoint_"),
  message: ({ kind, message }) => message || kind === "task_complete" || kind === "task_error",
  problem: ({ tone }) => tone === "bad",
};

/** Return the entries (see entries.js) that match. */
export function filterEntries(entries, { agent, kind, text }) {
  const has = matcher(text);
  if (!isFiltered({ agent, kind, text })) return entries;
  return entries.filter(
    (entry) =>
      (!agent || entry.who === agent || entry.whom === agent) &&
      (!kind || ENTRY_KINDS[kind](entry)) &&
      has(`${entry.who} ${entry.whom} ${entry.kind} ${entry.search}`),
  );
}
