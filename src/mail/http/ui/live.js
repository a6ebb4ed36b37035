// Who works on the task, by its live events: they come as things happen, have no id, and are not part of the timeline.

export const isLive = (event) => event.id === null && event.event !== "ping";

const seconds = (milliseconds) => {
  const whole = Math.max(0, Math.floor(milliseconds / 1000));
  return whole < 60 ? `${whole} s` : `${Math.floor(whole / 60)} min ${whole % 60} s`;
};

export class Working {
  #agents = new Map();

  /** Takes note of a live event that came at `now`, in milliseconds. */
  read(kind, { agent, ...facts }, now) {
    if (kind === "turn_ended") return void this.#agents.delete(agent);
    if (kind === "turn_started" || !this.#agents.has(agent)) this.#agents.set(agent, { since: now, work: new Map() });
    const { work } = this.#agents.get(agent);
    const key = facts.tool_call_id ?? facts.call;
    if (kind === "model_call_started") work.set(key, { name: facts.model, since: now, note: "" });
    else if (kind === "action_started") work.set(key, { name: facts.tool_name, since: now, note: "" });
    else if (kind === "model_call_retried" && work.has(key)) work.get(key).note = ` (${facts.reason}, attempt ${facts.attempt} after ${facts.retry_in} s)`;
    else if (kind === "model_call_ended" || kind === "action_ended") work.delete(key);
  }

  clear() {
    this.#agents.clear();
  }

  /** Who works on what, and for how long; empty where nobody does. */
  line(now) {
    const parts = [];
    for (const [agent, { since, work }] of this.#agents) {
      if (!work.size) parts.push(`${agent}, ${seconds(now - since)}`);
      for (const each of work.values()) parts.push(`${agent}: ${each.name}, ${seconds(now - each.since)}${each.note}`);
    }
    return parts.join(" · ");
  }
}
