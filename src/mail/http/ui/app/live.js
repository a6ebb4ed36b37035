// Who works on the task, by its live events: they come as things happen, have no id, and are not part of the record.

import { agentOf } from "../components/agent.js";

/** Whether an event of a stream is a live one. */
export const isLive = (event) => event.id === null && event.event !== "ping";

/**
 * The agents that take a turn.
 *
 * `agents` maps each name to `{since, work, text}`: `since` in milliseconds by the server's clock; `work` maps keys to
 * the model calls and actions that run, `{kind: "model" | "action", name, since, retry, progress}` (`retry`: null, or
 * `{reason, attempt, retry_in}`; `progress`: what an action has reported); `text` is what its model has written in the
 * current call, as `{text, reasoning, answer, to}`: `to` is who gets `text` if the model calls no tool, an agent or
 * "user"; "" if nobody does.
 */
export class Live {
  agents = new Map();

  /** Whether nobody works. */
  get isIdle() {
    return !this.agents.size;
  }

  /** What an agent does, or the first of its copies that works; undefined if none does. */
  of(name) {
    return [...this.agents].find(([one]) => agentOf(one) === name)?.[1];
  }

  /** The answers that are being written, as `{from, to, text}`. */
  get writing() {
    const all = [...this.agents].map(([from, { text }]) =>
      text.answer ? { from, to: "user", text: text.answer } : { from, to: text.to, text: text.text },
    );
    return all.filter(({ to, text }) => to && text.trim());
  }

  /** Take note of a live event, with its data parsed. */
  read(kind, { timestamp, extra_data: { agent, ...facts } }) {
    const at = Date.parse(timestamp);
    if (kind === "turn_ended") {
      this.agents.delete(agent);
      if (facts.waits_for) {
        const wait = { kind: "wait", name: facts.waits_for, since: at, until: Date.parse(facts.until), retry: null };
        this.agents.set(agent, { since: at, work: new Map([["wait", wait]]), text: silence() });
      }
      return;
    }
    if (kind === "turn_started" || !this.agents.has(agent))
      this.agents.set(agent, { since: at, work: new Map(), text: silence() });
    const one = this.agents.get(agent);
    const key = facts.tool_call_id ?? `model ${facts.call}`;
    if (kind === "model_call_started") {
      one.work.set(key, { kind: "model", name: facts.model, since: at, retry: null });
      one.text = silence();
    } else if (kind === "action_started") {
      one.work.set(key, { kind: "action", name: facts.tool_name, since: at, retry: null });
      one.text = silence(); // it was no answer
    } else if (kind === "model_call_retried" || kind === "action_retried") {
      if (one.work.has(key))
        one.work.get(key).retry = { reason: facts.reason, attempt: facts.attempt, retry_in: facts.retry_in };
      one.text = silence();
    } else if (kind === "action_reported") {
      if (one.work.has(key)) one.work.get(key).progress = facts.progress;
    } else if (kind === "model_call_ended" || kind === "action_ended") one.work.delete(key);
    else if (kind === "text_delta") {
      one.text[facts.kind] = (one.text[facts.kind] ?? "") + facts.delta;
      one.text.to = facts.to ?? one.text.to;
    }
  }

  clear() {
    this.agents.clear();
  }
}

const silence = () => ({ text: "", reasoning: "", answer: "", to: "" });
