// What the agents of a task have done, by its events: mail between whom, and each agent's history. No page here.

import { isPerson, recipientsOf, writtenText } from "../api/messages.js";
import { CALLER, edgeKey, localName } from "./model.js";

/**
 * A reader of a task's events, which remembers what it has read: `read` takes the array of events that grows.
 *
 * `edges` maps the key of an edge to `{key, from, to, count, forth, back, seq}`: messages in all, from `from` to `to` and back, and the event of the
 * last one. `last` are the keys over which the latest message went. `agents` maps names to `{entries, sent, received, calls}`, whose
 * entries are `{seq, time, kind, …}` with kind `sent` or `received` (`other`, `type`, `subject`, `body`), `call` (`name`, `arguments`, `reasoning`, `text`),
 * `result` or `note`.
 */
export class Activity {
  edges = new Map();
  agents = new Map();
  last = [];
  #swarm;
  #read = 0;

  constructor(swarm) {
    this.#swarm = swarm.name;
  }

  /** Read the events that are new, up to `at` if given. */
  read(events, at = Infinity) {
    for (; this.#read < events.length && events[this.#read].seq <= at; this.#read++) this.#add(events[this.#read]);
    return this;
  }

  /** The pairs that have written to each other, for `graphOf`. */
  get mail() {
    return [...this.edges.values()].flatMap(({ from, to, forth, back }) => [...(forth ? [{ from, to }] : []), ...(back ? [{ from: to, to: from }] : [])]);
  }

  /** The history of an agent. */
  of(name) {
    if (!this.agents.has(name)) this.agents.set(name, { entries: [], sent: 0, received: 0, calls: 0 });
    return this.agents.get(name);
  }

  #add({ seq, event, data }) {
    const extra = data.extra_data ?? {};
    const time = data.timestamp;
    if (extra.full_message) return this.#message(seq, time, extra.full_message);
    if (!extra.agent) return undefined;
    const agent = localName(extra.agent, this.#swarm);
    const add = (entry) => this.of(agent).entries.push({ seq, time, ...entry });
    const text = writtenText({ data });
    if (text !== null) return add({ kind: "note", event: "text", text });
    if (extra.tool_name) {
      this.of(agent).calls += 1;
      return add({ kind: "call", name: extra.tool_name, arguments: extra.tool_args ?? {}, id: extra.tool_call_id, reasoning: extra.reasoning ?? "", said: extra.preamble ?? "" });
    }
    if (event === "action_complete" || event === "action_error") return add({ kind: "result", isError: event === "action_error", text: resultOf(data.description ?? ""), seconds: extra.seconds });
    if (event === "agent_error" || event === "dead_letter" || event === "text_answer") return add({ kind: "note", event, text: data.description ?? "" });
    return undefined;
  }

  #message(seq, time, envelope) {
    const { msg_type: type, message } = envelope;
    const from = this.#idOf(message.sender);
    const facts = { seq, time, type, subject: message.subject, body: message.body };
    // The end of a task is a broadcast to all, but an answer to its caller.
    const isEnd = type === "broadcast_complete" && !from?.includes("@");
    const to = isEnd ? [CALLER] : recipientsOf(envelope).map((one) => this.#idOf(one)).filter(Boolean);
    if (from === null) {
      for (const id of to) this.#receive(id, { ...facts, other: "system" });
      return;
    }
    if (from !== CALLER) {
      const history = this.of(from);
      history.sent += 1;
      history.entries.push({ ...facts, kind: "sent", other: to.map(nameOf).join(", ") || "all agents" });
    }
    const keys = [];
    for (const id of to) {
      this.#receive(id, { ...facts, other: nameOf(from) });
      // A broadcast needs no right to write, so it draws no new edges.
      if (type === "broadcast" && !this.edges.has(edgeKey(from, id))) continue;
      keys.push(this.#count(from, id, seq));
    }
    if (keys.length) this.last = keys;
  }

  #receive(id, entry) {
    if (id === CALLER) return;
    const history = this.of(id);
    history.received += 1;
    history.entries.push({ ...entry, kind: "received" });
  }

  #count(from, to, seq) {
    const key = edgeKey(from, to);
    const edge = this.edges.get(key) ?? { key, from, to, count: 0, forth: 0, back: 0 };
    edge.count += 1;
    edge[edge.from === from ? "forth" : "back"] += 1;
    edge.seq = seq;
    this.edges.set(key, edge);
    return key;
  }

  /** The node of an address: an agent's name, `CALLER` for people, null for the system and for `all`. */
  #idOf(one) {
    const { address_type: type, address } = one;
    if (isPerson(one)) return CALLER;
    if (type !== "agent" || address === "all") return null;
    return localName(address, this.#swarm);
  }
}

const nameOf = (id) => (id === CALLER ? "the caller" : id);

/** The result of an action, without the sentence that the engine puts before it. */
const resultOf = (text) => text.replace(/^action (complete|error)[^\n]*:\n/, "");
