// Events as spans: turns, their model calls and actions, and waits. Times are milliseconds since 1970.

import { envelopeOf, isFromPerson, isPerson, recipientNames, writtenText } from "../api/messages.js";

/** Events about an agent that others have caused, so that they begin no turn. */
const NOT_A_TURN = new Set(["history_inherited", "breakpoint_action_complete"]);

/** Milliseconds that a wait lasts at least to be shown. */
const NOTABLE_WAIT = 100;

/** Milliseconds that a turn without times in the record took at most. */
const QUICK = 1_000;

const FAILED = new Set(["agent_error", "action_error"]);

/** The order in which an agent reads its mail. */
function tierOf({ msg_type, message }) {
  if (message.sender.address_type === "system") return 1;
  if (isPerson(message.sender)) return 2;
  if (msg_type === "interrupt") return 3;
  return msg_type === "broadcast" ? 4 : 5;
}

/** Split events into the groups that were stored at once: `{at, first, last, events}`. */
export function commitsOf(events) {
  const commits = [];
  let stamp = null;
  for (const event of events) {
    if (event.data.timestamp !== stamp) {
      stamp = event.data.timestamp;
      commits.push({ at: Date.parse(stamp), first: event.seq, last: event.seq, events: [] });
    }
    const commit = commits.at(-1);
    commit.events.push(event);
    commit.last = event.seq;
  }
  return commits;
}

const VERBS = {
  send_request: ({ target }) => `asks ${target}`,
  send_response: ({ target }) => `answers ${target}`,
  send_interrupt: ({ target }) => `interrupts ${target}`,
  send_broadcast: () => "writes to all agents",
  task_complete: () => "completes the task",
  acknowledge_broadcast: () => "acknowledges a broadcast",
  ignore_broadcast: () => "ignores a broadcast",
  help: () => "reads the manual",
};

/** Say what an agent did in a turn, from its events. */
function describe(events) {
  const words = [];
  for (const { event, data } of events) {
    const { tool_name: tool, tool_args: args = {}, taken_as: taken, target } = data.extra_data ?? {};
    if (event === "tool_call" && tool !== "await_message" && writtenText({ data }) === null) words.push(VERBS[tool]?.(args) ?? `calls ${tool}`);
    else if (event === "text_answer") words.push(taken === "task_complete" ? "completes the task" : target ? `answers ${target}` : "makes a remark");
    else if (event === "agent_error") words.push("makes an error");
    else if (event === "dead_letter") words.splice(0, Infinity, "fails");
    else if (event === "turn_discarded") words.push("is interrupted");
  }
  return [...new Set(words)].join(", ") || "waits for mail";
}

/**
 * Return `{spans, begin, end, agents}`: the spans in the order of their rows, and the agents in the order in which they appear.
 *
 * A span has `id`, `kind` ("message", "turn", "model", "action", "wait" or "end"), `agent`, `name`, `begin`, `end` (null
 * while it lasts), `status` ("ok", "failed", "running", "waiting" or "discarded"), the `first` and `last` event, `usage`
 * (or null), `parent` (the id of a turn, or null), and the `events` that it comes from. A turn has `queued`: since when its
 * message had waited; `reads`: the event of that message; `isTimed`: whether the record says when it began. Without that, `begin` is
 * the earliest time at which it can have begun. What a turn does has it as `within`.
 *
 * `live` are the agents that work now, as `session.live.agents`; `status` is the task's.
 */
export function readSpans(events, { live = new Map(), status = "completed" } = {}) {
  const reader = new Reader();
  for (const commit of commitsOf(events)) reader.read(commit);
  return reader.finish(live, status);
}

/** Return the first event of a commit that a turn has caused. A commit with the answer to a call may repeat the calls that still wait. */
function eventOfTurn(events) {
  const isAnswer = events.some(({ event }) => event === "breakpoint_action_complete");
  return events.find(({ event, data }) => data.extra_data?.agent && !NOT_A_TURN.has(event) && !(isAnswer && event === "breakpoint_tool_call"));
}

class Reader {
  spans = [];
  #mail = new Map(); // what each agent has not read: [{seq, tier, at}]
  #asked = new Map(); // open requests of each agent: request id → recipient
  #waits = new Map(); // the open wait of each agent
  #paused = null; // the open wait for a person
  #agents = new Set();
  #ended = new Map(); // when each agent's last turn ended

  read(commit) {
    const about = eventOfTurn(commit.events);
    if (commit.events.some((event) => event.event === "breakpoint_action_complete" || (envelopeOf(event) && isFromPerson(envelopeOf(event))))) this.#resume(commit.at);
    if (about) this.#turn(commit, about);
    for (const event of commit.events) this.#event(event, commit, about);
    if (about) this.#wait(commit, about.data.extra_data.agent);
  }

  #turn({ at, first, last, events }, about) {
    const { agent, timing, usage = null } = about.data.extra_data;
    this.#agents.add(agent);
    const isDiscarded = events.some(({ event }) => event === "turn_discarded");
    const mail = isDiscarded ? null : this.#take(agent, timing ? Date.parse(timing.began) : at);
    const begin = timing ? Date.parse(timing.began) : Math.min(at, Math.max(at - QUICK, mail?.at ?? 0, this.#ended.get(agent) ?? 0));
    const end = timing ? begin + timing.seconds * 1000 : at;
    this.#ended.set(agent, end);
    const waited = this.#waits.get(agent);
    if (waited) {
      this.#waits.delete(agent);
      waited.end = Math.max(waited.begin, begin);
      waited.status = "ok";
      if (waited.end - waited.begin < NOTABLE_WAIT) waited.isShort = true;
    }
    const hasFailed = events.some(({ event }) => FAILED.has(event) || event === "task_error");
    const turn = this.#add("turn", {
      agent,
      name: describe(events),
      begin,
      end,
      status: isDiscarded ? "discarded" : hasFailed ? "failed" : "ok",
      first,
      last,
      usage,
      queued: mail && mail.at < begin ? mail.at : null,
      reads: mail?.seq ?? null,
      isTimed: Boolean(timing),
      events,
    });
    const calls = timing?.model_calls ?? [];
    for (const { model, after, seconds, attempts = 1 } of calls) {
      this.#add("model", { agent, name: model, ...within(turn, after, seconds), first, last: first, usage: calls.length === 1 ? usage : null, attempts });
    }
    this.#actions(turn, events);
  }

  #actions(turn, events) {
    let call = null;
    let action = null;
    for (const event of events) {
      const { tool_name, after = 0, seconds = 0 } = event.data.extra_data ?? {};
      if (event.event === "tool_call") call = tool_name;
      else if (event.event === "action_call") {
        const name = call ?? /executing action tool: (\S+)/.exec(event.data.description)?.[1] ?? "action";
        action = this.#add("action", { agent: turn.agent, name, ...within(turn, after, 0), first: event.seq, last: event.seq, events: [event] });
      } else if (action && (event.event === "action_complete" || event.event === "action_error")) {
        Object.assign(action, { ...within(turn, (action.begin - turn.begin) / 1000, seconds), last: event.seq, status: event.event === "action_error" ? "failed" : "ok", events: [...action.events, event] });
        action = null;
      }
    }
  }

  #event(event, { at }, about) {
    const message = envelopeOf(event);
    const facts = { first: event.seq, last: event.seq, begin: at, end: at, events: [event], snippet: "" };
    if (message) {
      this.#deliver(event.seq, at, message);
      if (isFromPerson(message)) this.#add("message", { ...facts, snippet: snippetOf(message.message.body), agent: null, name: `${message.message.sender.address} writes to ${recipientNames(message).join(", ")}` });
    } else if (event.event === "task_complete" || event.event === "task_error") {
      const isPaused = this.#paused?.begin === at;
      const failed = event.event === "task_error";
      if (isPaused) return;
      this.#stop(at);
      this.#add("end", { ...facts, snippet: snippetOf(event.data.response), agent: null, name: failed ? "the task ends without an answer" : "the answer", status: failed ? "failed" : "ok" });
    } else if (event.event === "breakpoint_tool_call" && !this.#paused) {
      this.#paused = this.#add("wait", { ...facts, agent: event.data.extra_data.agent, name: "waits for you", end: null, status: "waiting" });
    } else if (event.event === "task_cancelled") {
      this.#stop(at);
      this.#add("end", { ...facts, agent: null, name: "the task is cancelled", status: "discarded" });
    } else if (!about && event.event === "dead_letter") {
      this.#add("end", { ...facts, agent: null, name: `mail for ${event.data.extra_data.mailbox} could not be processed`, status: "failed" });
    }
  }

  /** Put a message into the mailboxes of its recipients, and note what it asks or answers. */
  #deliver(seq, at, message) {
    const { sender, request_id: request } = message.message;
    if (message.msg_type === "broadcast_complete") return;
    const to = recipientNames(message);
    const agents = to.includes("all") ? [...this.#agents].filter((name) => name !== sender.address) : to;
    const mail = { seq, at, tier: tierOf(message) };
    for (const agent of agents) {
      if (!this.#mail.has(agent)) this.#mail.set(agent, []);
      this.#mail.get(agent).push(mail);
    }
    if (message.msg_type === "request" && sender.address_type === "agent") {
      const asked = this.#asked.get(sender.address) ?? new Map();
      this.#asked.set(sender.address, asked.set(request, to[0]));
    } else if (message.msg_type === "response") for (const agent of to) this.#asked.get(agent)?.delete(request);
  }

  /** Take the message that the agent read at a time out of its mailbox. */
  #take(agent, at) {
    const mail = this.#mail.get(agent) ?? [];
    let next = null;
    for (const each of mail) if ((each.at <= at + 1 || !next) && (!next || each.tier < next.tier)) next = each;
    if (next) mail.splice(mail.indexOf(next), 1);
    return next;
  }

  /** Note whose answers the agent waits for after its turn. */
  #wait({ at, last }, agent) {
    const asked = [...new Set(this.#asked.get(agent)?.values() ?? [])];
    if (!asked.length || this.#paused?.agent === agent) return;
    const wait = this.#add("wait", { agent, name: `waits for ${asked.join(", ")}`, begin: at, end: null, status: "waiting", first: last, last });
    this.#waits.set(agent, wait);
  }

  /** End the wait for a person. */
  #resume(at) {
    if (this.#paused) Object.assign(this.#paused, { end: at, status: "ok" });
    this.#paused = null;
  }

  /** End what lasts until the task stops. */
  #stop(at) {
    for (const wait of [...this.#waits.values(), ...(this.#paused ? [this.#paused] : [])]) {
      Object.assign(wait, { end: Math.max(at, wait.begin), status: "ok", isShort: at - wait.begin < NOTABLE_WAIT });
    }
    this.#waits.clear();
    this.#asked.clear();
    this.#paused = null;
  }

  #add(kind, facts) {
    const span = { id: `${kind} ${facts.first}.${this.spans.length}`, kind, status: "ok", usage: null, parent: null, events: [], ...facts };
    this.spans.push(span);
    return span;
  }

  finish(live, status) {
    const isPaused = status === "paused";
    for (const wait of this.#waits.values()) if (status !== "running") wait.isShort = true;
    if (this.#paused && !isPaused) this.#paused.isShort = true;
    for (const [agent, { since, work }] of live) this.#work(agent, since, work);
    const spans = this.spans.filter(({ isShort }) => !isShort);
    const begin = Math.min(...spans.map((span) => span.queued ?? span.begin));
    return {
      spans,
      agents: [...this.#agents],
      begin: Number.isFinite(begin) ? begin : 0,
      end: spans.reduce((end, span) => Math.max(end, span.end ?? span.begin), Number.isFinite(begin) ? begin : 0),
    };
  }

  /** Add what an agent does now: its turn, and the model calls and actions in it. */
  #work(agent, since, work) {
    this.#agents.add(agent);
    const waited = this.#waits.get(agent);
    if (waited) Object.assign(waited, { end: Math.max(waited.begin, since), status: "ok", isShort: since - waited.begin < NOTABLE_WAIT });
    const open = { agent, end: null, status: "running", first: null, last: null };
    const turn = this.#add("turn", { ...open, id: `live ${agent}`, name: "is working", begin: since, queued: null, reads: null, isTimed: true });
    for (const [key, { kind, name, since: from, retry }] of work) {
      this.#add(kind, { ...open, id: `live ${agent} ${key}`, name, begin: from, parent: turn.id, attempts: retry?.attempt ?? 1, retry });
    }
  }
}

/** Return the times of what a turn does. The record rounds them, so that they might seem to end after their turn. */
function within(turn, after, seconds) {
  const begin = Math.max(turn.begin, Math.min(turn.begin + after * 1000, turn.end - seconds * 1000));
  return { begin, end: begin + seconds * 1000, parent: turn.id, within: turn };
}

const snippetOf = (text = "") => text.slice(0, 200).replace(/\s+/g, " ");

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
  return [...words, ...(text !== null ? [text] : [tool_name, tool_args && JSON.stringify(tool_args)]), reasoning, preamble, content].filter(Boolean).join("\n");
}
