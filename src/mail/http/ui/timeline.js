// The timeline of a task, line by line.

import { $, fold, h, pretty } from "./dom.js";
import { TIERS, elapsed, readEvent, usageText } from "./events.js";

const ERRORS = new Set([
  "action_error",
  "agent_error",
  "dead_letter",
  "interswarm_message_error",
  "task_error",
]);

const anchor = (call) => `call-${call}`;

function entry(line, begun) {
  const parties = line.whom.length ? `${line.who} → ${line.whom.join(", ")}` : line.who;
  const tone = line.kind.startsWith("breakpoint") ? "waits" : ERRORS.has(line.kind) ? "bad" : line.terminal ? "done" : line.tier ? "letter" : "quiet-entry";
  return h(
    "li",
    { class: `entry ${tone}`, id: line.call ? anchor(line.call) : null, "data-seq": line.seq, tabindex: -1 },
    h(
      "p",
      { class: "head" },
      h("time", { datetime: line.time, title: line.time }, elapsed(begun, line.time)),
      line.tier && h("span", { class: `tier tier-${line.tier}`, title: `priority ${line.tier} of 5` }, `${line.tier} ${TIERS[line.tier]}`),
      h("span", { class: "kind" }, line.msgType ?? line.kind.replaceAll("_", " ")),
      parties && h("span", { class: "parties" }, parties),
      line.usage && h("span", { class: "quiet" }, usageText(line.usage)),
    ),
    line.subject && h("p", { class: "subject" }, line.subject),
    line.text && h("p", { class: "text" }, line.text),
    line.parts.map(([title, value]) => fold(title, pretty(value))),
    line.reasoningRef &&
      h("button", { type: "button", class: "link", onclick: () => $(anchor(line.reasoningRef))?.focus() }, "Reasoning: see the earlier call"),
  );
}

const paused = (line) => ({ ...line, kind: "paused", terminal: false, text: "The task waits for the results.", parts: [["Calls", line.text]] });

export class Timeline {
  #begun = null;
  #previous = "";

  /** `onLine` hears of each line that is new, and not of those that were there when the task was opened. */
  constructor(onLine) {
    this.last = 0;
    this.onLine = onLine;
    $("timeline").replaceChildren();
    $("latest").textContent = "";
  }

  /** Adds an event, once; returns what it says. */
  add(event, { isNew }) {
    const line = readEvent(event);
    if (line.seq <= this.last) return line;
    this.last = line.seq;
    this.#begun ??= line.time;
    // A pause ends a stream as an answer does; its text is the calls, for programs.
    const entryOf = line.terminal && this.#previous === "breakpoint_tool_call" ? paused(line) : line;
    this.#previous = line.kind;
    const list = $("timeline");
    const follows = window.innerHeight + window.scrollY >= document.body.scrollHeight - 80;
    list.append(entry(entryOf, this.#begun));
    if (isNew) {
      $("latest").textContent = [entryOf.kind.replaceAll("_", " "), line.who, entryOf.text.slice(0, 200)].filter(Boolean).join(": ");
      if (follows && list.childElementCount > 6) list.lastElementChild.scrollIntoView({ block: "nearest" });
      this.onLine(line);
    }
    return line;
  }
}
