// The history of an agent, in the format of its model's API, as messages that people can read.

import { pretty } from "../components/pretty.js";

/** Return the text of content: a string, or a list of parts. */
function partsOf(content) {
  if (content === null || content === undefined || content === "") return [];
  if (typeof content === "string") return [{ kind: "text", text: content }];
  return content.map((part) => {
    if (part.type === "thinking") return { kind: "reasoning", text: part.thinking };
    if (part.type === "tool_use" || part.type === "server_tool_use")
      return { kind: "call", name: part.name, id: part.id, text: pretty(part.input) };
    if (part.type === "refusal") return { kind: "text", text: part.refusal };
    return typeof part.text === "string" ? { kind: "text", text: part.text } : { kind: "data", text: pretty(part) };
  });
}

const text = (value) => (typeof value === "string" ? value : JSON.stringify(value));

/**
 * Return an entry of Chat Completions, of Responses or of Anthropic's API as `{role, parts}`: the role is "user",
 * "assistant", "tool" or "system"; a part has a `kind` ("text", "reasoning", "call", "result" or "data"), its `text`,
 * and for calls and results the `name` of the tool and the `id` of the call.
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
