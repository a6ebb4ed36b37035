// Events as numbered lines.

import { envelopeOf, recipientNames, writtenText } from "../api/messages.js";

const texts = new WeakMap();

/** The words of an event, in which a filter looks; they are put together once. */
export function textOf(event) {
  if (!texts.has(event)) texts.set(event, wordsOf(event));
  return texts.get(event);
}

function wordsOf({ data }) {
  const text = writtenText({ data });
  const { full_message: message, tool_name, tool_args, reasoning, preamble, content } = data.extra_data ?? {};
  const words = message ? [message.message.subject, message.message.body] : [data.response, data.description];
  return [
    ...words,
    ...(text !== null ? [text] : [tool_name, tool_args && JSON.stringify(tool_args)]),
    reasoning,
    preamble,
    content,
  ]
    .filter(Boolean)
    .join("\n");
}

const BAD = new Set([
  "action_error",
  "agent_error",
  "interswarm_message_error",
  "dead_letter",
  "task_error",
  "webhook_error",
]);
const GOOD = new Set(["task_complete"]);
const BUSY = new Set(["breakpoint_tool_call", "guard_decision", "task_cancelled", "turn_discarded"]);

/** Kinds in words, where they are not their names with spaces. */
const NAMES = {
  new_message: "message",
  tool_call: "tool call",
  action_call: "action begins",
  action_complete: "action ends",
  action_error: "action fails",
  await_message: "waits for mail",
  context_cut: "shortens its context",
  guard_decision: "guard decides",
  model_switched: "changes its model",
  task_complete_call: "completes the task",
  breakpoint_tool_call: "asks you",
  breakpoint_action_complete: "your answer",
  task_complete: "answer",
  task_error: "task fails",
};

const senderOf = ({ message: { sender } }) => (sender.address_type === "system" ? "system" : sender.address);

/** Return the beginning of a text in one line, without the marks of tables, code, headings, links and emphasis. */
export const oneLine = (text) =>
  text
    .slice(0, 400)
    .replace(/^[ \t]*\|?[ \t]*:?-{3}[-|: \t]*$/gm, "")
    .replace(/^[ \t]*\|(.*)\|[ \t]*$/gm, (_, cells) => cells.replaceAll("|", "·"))
    .replace(/^(#{1,6}[ \t]+|[ \t]*```.*$)/gm, "")
    .replace(/(^|[\s(·])\*\*(?=\S)([^*\n]+)\*\*(?=$|[\s).,:;!?·])/gm, "$1$2")
    .replace(/\[([^\]\n]+)\]\(https?:[^()\s]*\)/g, "$1")
    .replace(/\s+/g, " ")
    .trim();

/** Return an event as `{seq, kind, name, who, whom, isByAgent, text, tone, at, message, search, event}`. */
export function readEntry(event) {
  const { extra_data: extra = {}, timestamp } = event.data;
  const message = envelopeOf(event);
  const isPause = event.data.question !== undefined;
  const search = textOf(event);
  return {
    seq: event.seq,
    kind: event.event,
    name: message
      ? message.msg_type.replace("_", " ")
      : isPause
        ? "pauses"
        : writtenText(event) !== null
          ? "text"
          : (NAMES[event.event] ?? event.event.replaceAll("_", " ")),
    who: message ? senderOf(message) : (extra.agent ?? ""),
    whom: message ? recipientNames(message).join(", ") : "",
    isByAgent: !message || message.message.sender.address_type === "agent",
    text: oneLine(writtenText(event) ?? shortText(event, message, extra)),
    tone: BAD.has(event.event)
      ? "bad"
      : isPause || BUSY.has(event.event)
        ? "warn"
        : GOOD.has(event.event)
          ? "good"
          : "",
    at: Date.parse(timestamp),
    message,
    search,
    event,
  };
}

function shortText({ event, data }, message, extra) {
  if (message) return message.message.body || message.message.subject;
  if (event === "tool_call") return `${extra.tool_name} ${JSON.stringify(extra.tool_args ?? {})}`;
  if (data.question) return data.question;
  if (data.response !== undefined) return data.response;
  if (event === "await_message")
    return data.description.replace(/^agent .*? is awaiting a new message: (no reason given$)?/s, "");
  if (event === "breakpoint_tool_call") return data.description.replace(/^agent \S+ /, "");
  if (event === "action_call") return data.description.replace(/^.*?executing action tool: /s, "");
  const [first, ...rest] = data.description.split("\n");
  return rest.join(" ").trim() || first;
}

const cache = new WeakMap();

/** Return the entries of events; each event is read once. */
export const readEntries = (events) =>
  events.map((event) => {
    if (!cache.has(event)) cache.set(event, readEntry(event));
    return cache.get(event);
  });
