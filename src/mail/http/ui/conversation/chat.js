// The events of a task as a conversation: messages of people, answers, questions, and the work between them.

import { isPerson, readCalls, recipientNames, recipientsOf, writtenText } from "../api/messages.js";

/** The tools of MAIL itself; calls of others are work of their own. */
const MAIL_TOOLS = new Set([
  "send_request",
  "send_response",
  "send_interrupt",
  "send_broadcast",
  "send_interswarm_broadcast",
  "discover_swarms",
  "acknowledge_broadcast",
  "ignore_broadcast",
  "await_message",
  "help",
  "task_complete",
]);

/** Return the text below the first line of a description. */
const below = (description = "") => description.slice(description.indexOf("\n") + 1);

function readArguments(text) {
  try {
    return typeof text === "string" ? JSON.parse(text) : (text ?? {});
  } catch {
    return { arguments: text };
  }
}

/**
 * Reads events into `items`, in order. An item that grows gets a new `version`. By `kind`:
 *
 * - `message`: a person wrote, `{who, text, subject, type}`
 * - `work`: what agents did, `{began, ended, turns, mail, actions, errors}`; see `summary`. An action has a `result` once it ended
 * - `answer`: `{text}`
 * - `question`: a call that waits or waited for a person, `{callId, agent, name, args, asked, needsApproval, reply}`;
 *   `asked` is the message with the question, `{subject, text}`, if the call has sent one; `reply` is null, `{text, time}`
 *   or `{decision, by, reason, args, time}`; an approved call gets a `result` when it has run
 * - `told`: an agent wrote to a person, `{who, text, subject}`
 * - `failed`, `cancelled`: `{text}`
 * - `forked`: `{from, at}`
 */
export class Chat {
  items = [];
  #read = 0;
  #work = null; // the item of work that grows
  #waiting = ""; // the agent that has just paused the task
  #answered = ""; // when a call was last answered: a commit with an answer repeats the calls that still wait, and is no turn
  #asked = []; // messages to a person that ask something, until the pause that they belong to

  /** Read the events that have come since the last reading. */
  read(events) {
    for (; this.#read < events.length; this.#read++) this.#add(events[this.#read]);
    return this;
  }

  #push(kind, { seq, data }, facts) {
    const item = { kind, seq, time: data.timestamp, version: 0, ...facts };
    this.items.push(item);
    return item;
  }

  #add(event) {
    const { event: kind, data } = event;
    const extra = data.extra_data ?? {};
    switch (kind) {
      case "new_message":
      case "interswarm_message_received":
        return this.#message(event, extra.full_message);
      case "task_complete":
        return this.#end(event);
      case "task_error":
        if (this.items.at(-1)?.kind === "cancelled") return this.#close();
        // The errors of the commit that ends the task are its cause, which is said once.
        if (this.#work) this.#work.errors = this.#work.errors.filter(({ time }) => time !== data.timestamp);
        this.#close();
        return void this.#push("failed", event, { text: data.response });
      case "task_cancelled":
        this.#close();
        return void this.#push("cancelled", event, { text: data.description });
      case "task_forked":
        return void this.#push("forked", event, { from: extra.forked_from, at: extra.at });
      case "breakpoint_tool_call":
        this.#waiting = extra.agent ?? "";
        return data.timestamp === this.#answered ? undefined : this.#turn(event);
      case "breakpoint_action_complete":
        return this.#reply(event, extra);
      case "tool_call":
        return this.#call(event, extra);
      case "action_complete":
        this.#turn(event);
        return this.#result(extra.agent, below(data.description));
      case "action_error":
        this.#result(extra.agent, "");
      // falls through
      case "agent_error":
      case "dead_letter":
        this.#turn(event).errors.push({ seq: event.seq, time: data.timestamp, agent: extra.agent ?? "", text: data.description });
        return undefined;
      default:
        if (extra.agent) this.#turn(event);
        return undefined;
    }
  }

  #message(event, full) {
    if (!full) return;
    const { sender, subject, body } = full.message;
    if (isPerson(sender)) {
      if (full.msg_type === "response" && this.items.some(({ kind, reply }) => kind === "question" && reply?.text === body)) return;
      this.#close();
      this.#push("message", event, { who: sender.address, text: body, subject, type: full.msg_type });
      this.#begin(event);
      return;
    }
    const toPeople = recipientsOf(full).some(isPerson);
    if (toPeople && full.msg_type === "request") this.#asked.push({ subject, text: body });
    else if (toPeople && sender.address_type === "agent") this.#push("told", event, { who: sender.address, text: body, subject });
    else if (sender.address_type !== "system" && full.msg_type !== "broadcast_complete") {
      const work = this.#turn(event);
      work.mail.push({ seq: event.seq, time: event.data.timestamp, from: sender.address, to: recipientNames(full), subject, text: body, type: full.msg_type });
    }
  }

  #begin(event) {
    this.#work = this.#push("work", event, { began: event.data.timestamp, ended: null, last: event.data.timestamp, turns: 0, agents: [], mail: [], actions: [], errors: [] });
    this.#work.isRunning = true;
    return this.#work;
  }

  /** Take note of an event of a turn: all events of a turn have one time. */
  #turn({ seq, data }) {
    // What an agent still did when the task was cancelled belongs to the work before.
    const before = this.items.at(-1)?.kind === "cancelled" ? this.items.findLast(({ kind }) => kind === "work") : null;
    const work = this.#work ?? before ?? this.#begin({ seq, data });
    const agent = data.extra_data?.agent;
    work.version += 1;
    if (agent && `${agent} ${data.timestamp}` !== work.turn) {
      work.turn = `${agent} ${data.timestamp}`;
      work.turns += 1;
      if (!work.agents.includes(agent)) work.agents.push(agent);
    }
    work.last = data.timestamp;
    return work;
  }

  #call(event, { agent, tool_name: name, tool_args: args, tool_call_id: callId }) {
    const work = this.#turn(event);
    if (name && writtenText(event) === null && !MAIL_TOOLS.has(name)) work.actions.push({ seq: event.seq, time: event.data.timestamp, agent, name, args, callId });
  }

  /** Take note of what an agent's next action has returned: results come in the order of the calls. */
  #result(agent, result) {
    const isOpen = (action) => action.agent === agent && action.result === undefined;
    const isApproved = ({ kind, reply, result: known, agent: asker }) => kind === "question" && asker === agent && known === undefined && ["approve", "edit"].includes(reply?.decision);
    const action = this.#work?.actions.find(isOpen) ?? this.items.find(isApproved);
    if (!action) return;
    action.result = result;
    if (action.kind) action.version += 1;
  }

  #close() {
    if (!this.#work) return;
    Object.assign(this.#work, { ended: this.#work.last, isRunning: false });
    this.#work.version += 1;
    this.#work = null;
  }

  #end(event) {
    const agent = this.#waiting;
    this.#waiting = "";
    const calls = agent ? readCalls(event.data.response) : null;
    if (this.#work) {
      this.#work.last = event.data.timestamp;
      const asked = new Set(calls?.map((call) => call.call_id ?? call.id));
      this.#work.actions = this.#work.actions.filter(({ callId }) => !asked.has(callId));
    }
    this.#close();
    if (!calls) return void this.#push("answer", event, { text: event.data.response });
    const questions = calls.filter((call) => !call.needs_approval).length;
    const asked = this.#asked.length === questions ? this.#asked : [];
    this.#asked = [];
    for (const call of calls) {
      const callId = call.call_id ?? call.id;
      if (this.items.some((item) => item.callId === callId && !item.reply)) continue;
      const args = readArguments(call.arguments);
      this.#push("question", event, { callId, agent, name: call.name, args, asked: (!call.needs_approval && asked.shift()) || null, needsApproval: Boolean(call.needs_approval), reply: null });
    }
    return undefined;
  }

  #reply(event, { agent, tool_call_id: callId, decision, by, reason, arguments: args }) {
    const waits = (item) => item.kind === "question" && !item.reply && item.agent === agent && (callId ? item.callId === callId : !item.needsApproval);
    const item = this.items.find(waits);
    this.#answered = event.data.timestamp;
    if (item) {
      const time = event.data.timestamp;
      item.reply = decision ? { decision, by: by?.split("@")[0].replace(/^\w+:/, "") ?? "", reason, args, time } : { text: below(event.data.description), time };
      item.version += 1;
    }
    if (!this.#work) this.#begin(event);
  }
}

const list = new Intl.ListFormat("en");

/** Return what was done, in a line: `supervisor asked weather and math`. */
export function summary({ agents, mail, actions }) {
  const asked = new Map();
  for (const { from, to, type } of mail) {
    if (type !== "request" && type !== "interrupt") continue;
    for (const name of to) asked.set(from, (asked.get(from) ?? new Set()).add(name));
  }
  const some = (names) => list.format(names.length > 4 ? [...names.slice(0, 3), `${names.length - 3} others`] : names);
  if (asked.size === 1) {
    const [[from, to]] = asked;
    return `${from} asked ${some([...to])}`;
  }
  if (asked.size > 1) return `${some(agents)} worked together`;
  const names = [...new Set(actions.map(({ name }) => name))];
  if (names.length && agents.length === 1) return `${agents[0]} used ${some(names)}`;
  return agents.length ? `${some(agents)} worked` : "No work yet";
}

/** Names of an argument that holds a question. */
const QUESTIONS = ["question", "prompt", "message", "text", "body", "query", "ask"];

/** Return a call's question in words and its other arguments; `words` is "" if no argument holds a question. */
export function questionOf(args) {
  const texts = Object.entries(args).filter(([, value]) => typeof value === "string" && value.trim());
  const [name, words] = texts.find(([key]) => QUESTIONS.includes(key)) ?? (texts.length === 1 && Object.keys(args).length === 1 ? texts[0] : ["", ""]);
  return { words, others: Object.fromEntries(Object.entries(args).filter(([key]) => key !== name)) };
}

/** Return the JSON value of an answer that is a JSON object or list, else undefined. */
export function jsonOf(text) {
  if (!/^\s*[[{]/.test(text)) return undefined;
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}
