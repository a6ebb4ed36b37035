// What an event says, taken from its data (SPEC, sections 4 and 9). No page here, so that it can be tested without one.

export const TIERS = { 1: "system", 2: "person", 3: "interrupt", 4: "broadcast", 5: "agent" };

const TIER_BY_SENDER = { system: 1, admin: 2, user: 2 };
const TIER_BY_TYPE = { interrupt: 3, broadcast_complete: 3, broadcast: 4, request: 5, response: 5 };
const TERMINAL = new Set(["task_complete", "task_error"]);

/** The priority of a message: by its sender, and among agents by its type. */
export const tierOf = (message) =>
  TIER_BY_SENDER[message.message.sender.address_type] ?? TIER_BY_TYPE[message.msg_type];

export const recipientsOf = (message) =>
  (message.message.recipients ?? [message.message.recipient]).map((recipient) => recipient.address);

/** `{kind, seq, time, who, whom, text, tier, parts, usage, terminal}` of `{event, id, data}`; `parts`: what can be opened. */
export function readEvent({ event: kind, id, data }) {
  const line = { kind, seq: Number(id), time: data.timestamp, who: "", whom: [], text: "", tier: null, parts: [] };
  line.terminal = TERMINAL.has(kind);
  if (line.terminal) return { ...line, text: data.response };
  const extra = data.extra_data ?? {};
  line.usage = extra.usage;
  if (extra.full_message) {
    const message = extra.full_message;
    line.who = message.message.sender.address;
    line.whom = recipientsOf(message);
    line.tier = tierOf(message);
    line.msgType = message.msg_type;
    line.subject = message.message.subject;
    line.text = message.message.body;
    line.parts.push(["Message", message]);
    return line;
  }
  line.who = extra.agent ?? "";
  line.text = (data.description ?? "").trim();
  if (extra.preamble) line.parts.push(["Said", extra.preamble]);
  if (extra.reasoning) line.parts.push(["Reasoning", extra.reasoning]);
  if (extra.reasoning_ref) line.reasoningRef = extra.reasoning_ref;
  if (extra.tool_name) {
    line.text = extra.tool_name;
    line.call = extra.tool_call_id;
    line.parts.push(["Tool call", { id: extra.tool_call_id, arguments: extra.tool_args }]);
  }
  return line;
}

/** Seconds between two ISO times, for people. */
export function elapsed(from, to) {
  const seconds = (Date.parse(to) - Date.parse(from)) / 1000;
  if (!Number.isFinite(seconds)) return "";
  return seconds < 60 ? `+${seconds.toFixed(2)} s` : `+${Math.floor(seconds / 60)} min ${Math.round(seconds % 60)} s`;
}

/** What models were paid, in a few words. */
export function usageText(usage) {
  const tokens = `${usage.input_tokens} tokens in, ${usage.output_tokens} out`;
  return usage.cost ? `${tokens}, $${usage.cost.toFixed(4)}` : tokens;
}
