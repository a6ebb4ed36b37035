// What the agents of a task have done, by its items: mail between whom, and each agent's history. No page here.

import { agentOf } from "../components/agent.js";
import { CALLER, edgeKey, localName } from "./model.js";

/**
 * A reader of a task's items, which remembers what it has read: `read` takes the array of items that grows.
 *
 * `edges` maps the key of an edge to `{key, from, to, count, forth, back, seq}`: messages in all, from `from` to `to`
 * and back, and the event of the last one. `last` are the keys over which the latest message went. `agents` maps
 * names to `{entries, sent, received, actions}`, whose entries are `{seq, time, kind, …}` with kind `sent` or
 * `received` (`other`, `type`, `subject`, `body`), `call` (`name`, `arguments`, `result`, `seconds`) or `note`
 * (`event`, `text`); with the `reasoning` of the model and what it `said`, if there is some, and `isError`.
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

  /** Read the items that are new, and have begun by `at` if given. */
  read(items, at = Infinity) {
    for (; this.#read < items.length; this.#read++) if (items[this.#read].seq <= at) this.#add(items[this.#read]);
    return this;
  }

  /** The pairs that have written to each other, for `graphOf`. */
  get mail() {
    return [...this.edges.values()].flatMap(({ from, to, forth, back }) => [
      ...(forth ? [{ from, to }] : []),
      ...(back ? [{ from: to, to: from }] : []),
    ]);
  }

  /** The history of an agent. */
  of(name) {
    if (!this.agents.has(name)) this.agents.set(name, { entries: [], sent: 0, received: 0, actions: 0 });
    return this.agents.get(name);
  }

  #add(item) {
    const { kind, seq, time, name, text, reasoning = "", said = "" } = item;
    const add = (entry) =>
      item.agent && this.of(this.#id(item.agent)).entries.push({ seq, time, reasoning, said, ...entry });
    if (kind === "message") this.#message(item, CALLER, item.recipients);
    else if (kind === "mail") this.#message(item, item.sender, item.recipients);
    else if (kind === "told" || (kind === "answer" && item.who))
      this.#message({ type: kind, subject: "", ...item }, item.who, [CALLER]);
    else if (kind === "action" || kind === "question") {
      if (kind === "action" && item.agent) this.of(this.#id(item.agent)).actions += 1;
      add({
        kind: "call",
        name,
        arguments: item.arguments,
        result: item.result ?? "",
        seconds: item.seconds,
        isError: item.has_failed,
      });
    } else if (kind === "fault") add({ kind: "note", event: "error", text, isError: true });
    else if (kind === "note") {
      add({ kind: "note", event: name, text });
      for (const to of item.recipients)
        this.#receive(this.#id(to), { seq, time, type: name, subject: "", body: text, other: "system" });
    }
  }

  #message({ seq, time, type, subject, text: body, reasoning = "", said = "" }, sender, recipients) {
    const from = this.#id(sender);
    const to = recipients.filter((name) => name !== "all").map((name) => this.#id(name));
    const facts = { seq, time, type, subject, body };
    if (from !== CALLER) {
      const history = this.of(from);
      history.sent += 1;
      history.entries.push({
        ...facts,
        reasoning,
        said,
        kind: "sent",
        other: to.map(nameOf).join(", ") || "all agents",
      });
    }
    const keys = [];
    for (const id of to) {
      this.#receive(id, { ...facts, other: nameOf(from) });
      // A broadcast needs no right to write, so it draws no new edges.
      if (type !== "broadcast" || this.edges.has(edgeKey(from, id))) keys.push(this.#count(from, id, seq));
    }
    if (keys.length) this.last = keys;
  }

  #receive(id, entry) {
    if (id === CALLER || id === "all") return;
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

  #id(address) {
    return agentOf(localName(address, this.#swarm));
  }
}

const nameOf = (id) => (id === CALLER ? "the caller" : id);
