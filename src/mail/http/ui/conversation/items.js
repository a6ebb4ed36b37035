// The items of a conversation, as the server makes them from events: what people wrote, answers, questions, and work.

const list = new Intl.ListFormat("en");

/** Kinds that the trace shows, not the conversation; but what guards object to is in both. */
const OF_TRACE = new Set(["turn", "model_call", "wait", "note"]);

const isObjection = ({ kind, name }) => kind === "note" && name === "guard_decision";

/**
 * Items in the order in which they began: `all`, and those `shown` in the conversation, where work has its `steps`
 * (mail, actions, faults).
 */
export class Items {
  all = [];
  shown = [];
  #known = new Map(); // by id

  /** Add an item, or what has become of it. */
  add(item) {
    const known = this.#known.get(item.id);
    if (known) return void (known.version <= item.version && Object.assign(known, item));
    const made = item.kind === "work" ? { ...item, steps: [] } : { ...item };
    const work = this.#known.get(item.work);
    this.#known.set(item.id, made);
    this.all.push(made);
    if (isObjection(made)) this.shown.push(made);
    else if (!OF_TRACE.has(made.kind)) (work?.steps ?? this.shown).push(made);
    if (work) work.version = item.version;
    return undefined;
  }

  /** Add items, and return all of them. */
  with(items) {
    for (const item of items) this.add(item);
    return this;
  }
}

/** Return the errors among steps, without the one that ended the task: that is an item of its own. */
export const errorsOf = (steps) =>
  steps.filter(({ has_failed, kind, ended_task }) => has_failed || (kind === "fault" && !ended_task));

/** Return what was done, in a line: `supervisor asked weather and math`. */
export function summary({ agents, steps }) {
  const asked = new Map();
  for (const { kind, sender, recipients, type } of steps) {
    if (kind !== "mail" || (type !== "request" && type !== "interrupt")) continue;
    for (const name of recipients) asked.set(sender, (asked.get(sender) ?? new Set()).add(name));
  }
  const some = (names) => list.format(names.length > 4 ? [...names.slice(0, 3), `${names.length - 3} others`] : names);
  if (asked.size === 1) {
    const [[from, to]] = asked;
    return `${from} asked ${some([...to])}`;
  }
  if (asked.size > 1) return `${some(agents)} worked together`;
  const names = [...new Set(steps.filter(({ kind }) => kind === "action").map(({ name }) => name))];
  if (names.length && agents.length === 1) return `${agents[0]} used ${some(names)}`;
  return agents.length ? `${some(agents)} worked` : "No work yet";
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
