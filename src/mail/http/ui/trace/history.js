// The history of an agent, in the format of its model's API, as messages that people can read.

import { pretty } from "../components/pretty.js";

/** The text of an element of mail, which ends at the first end: a text with many beginnings is read once. */
const within = (name) => `<${name}>(?<${name}>(?:(?!</?(?:${name}|incoming_message)>)[^])*?)</${name}>`;

/** Mail as models read it (docs/message-format.md). */
const ENVELOPE = new RegExp(
  [
    "<incoming_message>",
    "<timestamp>(?<time>[^<]*)</timestamp>",
    '<from type="(?<type>[a-z]+)">(?<from>[^<]*)</from>',
    within("to"),
    within("subject"),
    within("body"),
    "</incoming_message>",
  ].join("\n"),
  "g",
);

/** What stands for a `<` before the name of an element of mail, or of a step in manual mode. */
const ELEMENTS = "incoming_message|timestamp|from|to|address|subject|body";
const STEP_ELEMENTS = `${ELEMENTS}|public|private|manual_step|instructions|how_to_answer`;

const CHARACTERS = { "&amp;": "&", "&lt;": "<", "&gt;": ">", "&#13;": "\r" };
const addressOf = (text) => text.replace(/&(?:amp|lt|gt|#13);/g, (entity) => CHARACTERS[entity]);

/** Return a text as parts: the mail in it, each with its `xml`, and what stands around it. */
function partsOfText(content) {
  const elements = /^<(public|private|manual_step)\b/m.test(content) ? STEP_ELEMENTS : ELEMENTS;
  const escaped = new RegExp(`&(?:amp;)*lt;(?=/?(?:${elements})(?:[\\s/>]|$))`, "gi");
  const written = (escapes) => escapes.replace(escaped, (each) => (each.length > 4 ? `&${each.slice(5)}` : "<"));
  const parts = [];
  let end = 0;
  const add = (rest) => rest.trim() && parts.push({ kind: "text", text: rest });
  for (const { 0: xml, index, groups } of content.matchAll(ENVELOPE)) {
    add(content.slice(end, index));
    parts.push({
      kind: "mail",
      text: written(groups.body),
      subject: written(groups.subject),
      from: addressOf(groups.from),
      isByAgent: groups.type === "agent",
      to: [...groups.to.matchAll(/<address[^<>]*>([^<]*)</g)].map(([, address]) => addressOf(address)),
      time: groups.time,
      xml,
    });
    end = index + xml.length;
  }
  add(content.slice(end));
  return parts;
}

/** Return the parts of content: of a string, or of a list of parts. */
function partsOf(content) {
  if (content === null || content === undefined || content === "") return [];
  if (typeof content === "string") return partsOfText(content);
  return content.flatMap((part) => {
    if (part.type === "thinking") return { kind: "reasoning", text: part.thinking };
    if (part.type === "tool_use" || part.type === "server_tool_use")
      return { kind: "call", name: part.name, id: part.id, text: pretty(part.input) };
    if (part.type === "refusal") return { kind: "text", text: part.refusal };
    return typeof part.text === "string" ? partsOfText(part.text) : { kind: "data", text: pretty(part) };
  });
}

const text = (value) => (typeof value === "string" ? value : JSON.stringify(value));

/**
 * Return an entry of Chat Completions, of Responses or of Anthropic's API as `{role, parts}`: the role is "user",
 * "assistant", "tool" or "system"; a part has a `kind` ("text", "mail", "reasoning", "call", "result" or "data"), its
 * `text`, and for calls and results the `name` of the tool and the `id` of the call.
 */
export function readHistoryEntry(entry) {
  if (entry.type === "function_call")
    return {
      role: "assistant",
      parts: [{ kind: "call", name: entry.name, id: entry.call_id, text: pretty(entry.arguments) }],
    };
  if (entry.type === "function_call_output")
    return { role: "tool", parts: [{ kind: "result", id: entry.call_id, text: text(entry.output) }] };
  if (entry.type === "reasoning") {
    const written = [...(entry.summary ?? []), ...(entry.content ?? [])]
      .map((part) => part.text)
      .filter(Boolean)
      .join("\n\n");
    return {
      role: "assistant",
      parts: [{ kind: "reasoning", text: written || "The provider keeps this reasoning to itself." }],
    };
  }
  if (entry.role === "tool")
    return { role: "tool", parts: [{ kind: "result", id: entry.tool_call_id, text: text(entry.content) }] };
  if (entry.role) {
    const calls = (entry.tool_calls ?? []).map((call) => ({
      kind: "call",
      name: call.function.name,
      id: call.id,
      text: pretty(call.function.arguments),
    }));
    const reasoning = entry.reasoning_content ? [{ kind: "reasoning", text: entry.reasoning_content }] : [];
    return { role: entry.role, parts: [...reasoning, ...partsOf(entry.content), ...calls] };
  }
  return { role: "assistant", parts: [{ kind: "data", text: pretty(entry) }] };
}

/** Return entries as `readHistoryEntry` does, with the names of the tools that results belong to. */
export function readHistory(entries) {
  const messages = entries.map(readHistoryEntry);
  const names = new Map(
    messages.flatMap(({ parts }) => parts.filter(({ kind }) => kind === "call").map(({ id, name }) => [id, name])),
  );
  for (const part of messages.flatMap(({ parts }) => parts))
    if (part.kind === "result") part.name = names.get(part.id) ?? "";
  return messages;
}

/** Return a tool's declaration, in any API's style, as `{name, description, parameters}`. */
export function readTool(tool) {
  const { name, description = "", parameters, input_schema: schema } = tool.function ?? tool;
  return { name: name ?? tool.type, description, parameters: parameters ?? schema ?? null };
}
