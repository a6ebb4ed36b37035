// The task that is open: its record, its events as they come, who works on it, and what a person can do with it.

import * as api from "../api/api.js";
import { Items } from "../conversation/items.js";
import { Live, isLive } from "./live.js";
import { Store } from "./store.js";

/** Milliseconds after which the record is read again while events come. */
const REFRESH = 2_000;

/** Kinds of events after which the stream ends or may end. */
const TERMINAL = new Set(["task_complete", "task_error"]);

export class Session extends Store {
  record = null; // the latest `GET /task`, without its events
  events = []; // by `seq`, ascending; the same array grows
  items = new Items(); // of the conversation
  live = new Live();
  at = null; // the chosen moment
  past = null; // the record as of that moment, with its `items`
  isFollowing = false;
  isLoading = true;
  connection = ""; // of the stream: "", "live" or "reconnecting"
  problem = null;
  #stop = new AbortController();
  #watch = null; // ends the stream that is followed
  #readAt = 0;
  #soon = null; // the timer of the next time that the record is read
  #isOpening = false;
  /** `{id, key}` of those whose message has not been sent, by where they begin and what their actions do. */
  #forks = new Map();

  constructor(id) {
    super();
    this.id = id;
  }

  /** The number of the last event that is here. */
  get last() {
    return this.events.at(-1)?.seq ?? 0;
  }

  /** The record that is shown: of the chosen moment, or the latest. */
  get shown() {
    return this.past ?? this.record;
  }

  /** Read all of the task, then follow it. */
  async open() {
    this.#isOpening = true;
    await this.#guard(async () => {
      await this.#read();
      this.isLoading = false;
      this.changed();
    });
    this.#isOpening = false;
    if (this.record) void this.watch();
  }

  close() {
    this.#stop.abort();
  }

  /** Follow the task until it stops, from the last event on; once more after each message to it. */
  async watch() {
    this.#watch?.abort();
    const watch = (this.#watch = new AbortController());
    const signal = AbortSignal.any([this.#stop.signal, watch.signal]);
    this.isFollowing = true;
    this.live.clear();
    let isCurrent = false; // whether the record shows all events
    const onState = (state) => this.#set({ connection: state });
    try {
      for await (const event of api.stream(this.id, { after: this.last, signal, onState })) {
        if (signal.aborted) return;
        if (event.event === "item") {
          this.items.add(event.data);
          continue;
        }
        if (event.event === "action_progress") {
          this.#note(event.data.extra_data);
          continue;
        }
        if (isLive(event)) {
          this.live.read(event.event, event.data);
          this.changed();
          continue;
        }
        isCurrent = false;
        this.#add([event]);
        if (event.event === "action_complete" || event.event === "action_error")
          this.#forget(event.data.extra_data ?? {});
        const isTerminal = TERMINAL.has(event.event);
        if (isTerminal || Date.now() - this.#readAt > REFRESH) {
          await this.#read(signal);
          isCurrent = isTerminal;
        } else this.#readSoon();
      }
      if (!signal.aborted && !isCurrent) await this.#read(signal);
    } catch (error) {
      if (!signal.aborted) this.#set({ problem: error });
    }
    if (signal.aborted) return;
    this.live.clear();
    this.#set({ isFollowing: false, connection: "" });
  }

  /** Follow the task again if it has gone further than what is here: `record` is a fresh one, from the list. */
  look(record) {
    if (record && this.record && record.seq > this.record.seq)
      this.#set({ record: { ...this.record, usage: record.usage } });
    if (this.isFollowing || this.#isOpening) return;
    if (!this.record) return void (this.problem?.permanent || this.open());
    if (record && record.seq <= this.last && record.status === this.record.status) return;
    void this.watch();
  }

  /** Connect again at once, if a stream is broken. */
  reconnect() {
    if (this.connection === "reconnecting") void this.watch();
    else this.look();
  }

  /** Send a message to the task. */
  async send(message, options) {
    await api.send({ ...message, task_id: this.id }, options);
    this.#resumed();
  }

  /** Answer the pending calls: with a text for a single one, or a list of `{call_id, content}`. */
  async answer(results) {
    await this.#resume({ breakpoint_tool_call_result: typeof results === "string" ? { content: results } : results });
  }

  /** Decide on a call that needs approval: "approve", "edit" (with `arguments`) or "reject" (with a `reason`). */
  async decide(call_id, decision, facts = {}) {
    await this.#resume({ approvals: [{ call_id, decision, ...facts }] });
  }

  /** Cancel the task; its events tell what becomes of it. */
  async cancel() {
    await api.cancel(this.id);
    this.#resumed();
  }

  /** Cancel a call or a timer that waits. */
  async cancelWait(wait) {
    await api.cancelWait(this.id, wait);
    this.#resumed();
  }

  /** Delete the task, which has stopped, and follow it no more. */
  async delete() {
    await api.deleteTask(this.id);
    this.close();
  }

  /** Process the dead letters of a failed task again or, if there are none, send the last message of a person again. */
  async retry() {
    if (this.record.dead_letters.length) await api.redrive(this.id);
    else await api.send({ ...this.#lastMessage(), task_id: this.id });
    this.#resumed();
  }

  /**
   * Make a task that continues from the event `at`, with a message if there is one, and whose actions do what
   * `actions` says; returns its id. If the message fails, the fork is used when it is sent again.
   */
  async fork({ at, message, actions }) {
    const from = JSON.stringify([at, actions]);
    const made = this.#forks.get(from) ?? { id: await api.fork(this.id, at, { actions }), key: new api.RetryKey() };
    if (message) {
      this.#forks.set(from, made);
      const whole = {
        ...(typeof message === "string" ? { body: message } : message),
        task_id: made.id,
        drop_question: true,
      };
      try {
        await api.send(whole, { key: made.key.of(whole) });
      } catch (problem) {
        if (problem.status === 404) this.#forks.delete(from); // it was deleted meanwhile
        throw problem;
      }
    }
    this.#forks.delete(from);
    return made.id;
  }

  /** Show the task as of an event, or (null) as it is. */
  async lookAt(seq) {
    if (seq === this.at) return;
    this.#set({ at: seq });
    const { items = [], ...past } = seq === null ? {} : await api.taskAt(this.id, seq);
    if (this.at === seq) this.#set({ past: seq === null ? null : { ...past, items: new Items().with(items) } });
  }

  async #resume(kwargs) {
    try {
      await api.resume(this.id, kwargs);
    } catch (problem) {
      if (problem.permanent) await this.#read(); // somebody else may have been faster
      throw problem;
    }
    this.#resumed();
  }

  /** Follow the task from its next event on, having changed it. */
  #resumed() {
    this.problem = null;
    void this.#guard(() => this.#read());
    void this.watch();
  }

  #lastMessage() {
    const { type, subject, text } = this.items.all.findLast(({ kind }) => kind === "message");
    return { body: text, subject, msg_type: type, entrypoint: this.record.entrypoint };
  }

  /** Read the record, with the events and the waiting mail that are new. */
  async #read(signal = this.#stop.signal) {
    this.#readAt = Date.now();
    clearTimeout(this.#soon);
    this.#soon = null;
    for (;;) {
      const { record, events, items, isComplete } = await api.task(this.id, { after: this.last, signal });
      if (signal.aborted) return;
      this.items.with(items);
      this.#add(events);
      this.record = record;
      this.problem = null;
      this.changed();
      if (isComplete) return;
    }
  }

  /** Read the record when it may be read again, unless that happens before. */
  #readSoon() {
    this.#soon ??= setTimeout(
      () => {
        this.#soon = null;
        if (!this.#stop.signal.aborted) void this.#guard(() => this.#read());
      },
      this.#readAt + REFRESH - Date.now(),
    );
  }

  /** Note what a call that waits has reported. */
  #note(call) {
    const calls = this.record.calls ?? [];
    const isKnown = calls.some(({ id }) => id === call.id);
    this.record.calls = isKnown ? calls.map((each) => (each.id === call.id ? call : each)) : [...calls, call];
    this.changed();
  }

  /** Drop a call that has ended: the record is read again only after a while. */
  #forget({ agent, tool_call_id }) {
    const calls = this.record.calls?.filter((call) => call.agent !== agent || call.call_id !== tool_call_id);
    this.record.calls = calls?.length ? calls : undefined;
  }

  /** Add the events that follow on the last one; others have come before. The first ones may have been deleted. */
  #add(events) {
    for (const event of events) if (!this.events.length || event.seq === this.last + 1) this.events.push(event);
    this.changed();
  }

  async #guard(work) {
    try {
      await work();
    } catch (error) {
      if (!this.#stop.signal.aborted) this.#set({ problem: error });
    }
  }

  #set(state) {
    Object.assign(this, state);
    this.changed();
  }
}
