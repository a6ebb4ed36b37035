// Forking a task: from which entry, and with what message.

import * as api from "../api/api.js";
import { FormDialog } from "../components/dialog.js";
import { Radio, SelectField, TextField } from "../components/field.js";
import { html, useMemo, useRef, useState } from "../html.js";
import { indexOf, messageOf, snapshotsOf } from "./snapshots.js";

/** What a task with an edited first message was made from, by its id: it is no fork, so its record doesn't say. */
export const originals = new Map();

/**
 * Make a fork that runs as the task did, without another message; returns its id. Its actions wait for approval
 * unless `actions` says otherwise.
 */
export const rerun = (session, at, actions = "ask") => api.fork(session.id, at, { actions, run: true });

/** What the actions of a fork can do, with the first as the proposal. */
export const ACTIONS = { ask: "wait for your approval", run: "run", refuse: "are refused" };

/**
 * Return what a fork at an entry can be: `{at, message}`. If the entry is in the moment of a person's message,
 * `message` is that one and `at` the entry before it (null for the first entry: a new task).
 */
function planOf(events, seq) {
  const snapshots = snapshotsOf(events);
  const snapshot = snapshots[indexOf(snapshots, seq)];
  const message = messageOf(
    events.find((event) => event.seq >= snapshot.first && event.seq <= snapshot.last && messageOf(event)),
  );
  return { at: snapshot.last, message, before: snapshot.first > 1 ? snapshot.first - 1 : null };
}

/** How a fork continues: the value, the label and a note of each choice. */
const WAYS = {
  edit: ["edit", "Edit the message", "Send another message in place of the one at this entry."],
  message: ["message", "Add a message", "Continue from this entry with a further message."],
  run: [
    "run",
    "Run again",
    "Continue from this entry with the mail that waited, for example after you have changed a prompt.",
  ],
  pause: ["pause", "Pause", "Only create the task; a message resumes it."],
};

/** A dialog; `seq` is the entry to fork from, `onFork(task_id)` is called with the new task. */
export function ForkDialog({ session, seq, onFork, onClose }) {
  const plan = useMemo(() => planOf(session.events, seq), [session.id, seq]);
  const [how, setHow] = useState(plan.message ? "edit" : "message");
  const [body, setBody] = useState(plan.message?.body ?? "");
  const [actions, setActions] = useState("ask");
  const key = useRef(new api.RetryKey());
  const choose = (value) => () => {
    setHow(value);
    setBody(value === "edit" ? plan.message.body : "");
  };
  const make = async () => {
    if (how === "run") return rerun(session, plan.at, actions);
    if (how === "pause") return session.fork({ at: plan.at, actions });
    if (how === "message") return session.fork({ at: plan.at, actions, message: body });
    const message = { ...plan.message, body };
    if (!isNew) return session.fork({ at: plan.before, actions, message });
    const id = await api.send(message, { key: key.current.of(message) });
    originals.set(id, { task_id: session.id, at: 0 });
    return id;
  };
  const choice = (value, label, note) => html`
    <${Radio} name="how" id=${`fork-${value}`} label=${label} isChosen=${how === value} onChoose=${choose(value)}>
      ${note}
    </${Radio}>
  `;
  const needsBody = how === "edit" || how === "message";
  const isNew = how === "edit" && plan.before === null;
  return html`
    <${FormDialog}
      title=${`Fork from entry ${plan.at}`}
      action="Create fork"
      submit=${make}
      onDone=${onFork}
      onClose=${onClose}>
      <p class="quiet small-text">
        A fork is a new task, with the histories of the agents and the mail that waited at that moment. This task stays
        as it is.
      </p>
      <fieldset class="choices">
        <legend class="hidden-label">How to continue</legend>
        ${plan.message && choice(...WAYS.edit)}
        ${choice(...WAYS.message)}
        ${choice(...WAYS.run)}
        ${choice(...WAYS.pause)}
      </fieldset>
      ${
        needsBody &&
        html`<${TextField} label="Message" id="fork-body" rows="4" required value=${body} onType=${setBody} />`
      }
      ${
        isNew
          ? html`
              <p class="quiet small-text">The first message begins a new task, in which actions run as they do here.</p>
            `
          : html`
              <${SelectField}
                label="Actions that are not read-only"
                id="fork-actions"
                value=${actions}
                onChoose=${setActions}
                options=${Object.entries(ACTIONS)} />
            `
      }
    </${FormDialog}>
  `;
}
