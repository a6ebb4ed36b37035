// The snapshots of a task, to which its reader can go back: what it was after each group of events that was stored at
// once.

import { envelopeOf, isFromPerson } from "../api/messages.js";
import { readEntries } from "./entries.js";

/** Split events into the groups that were stored at once: `{at, first, last, events}`. */
function commitsOf(events) {
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

/**
 * Return the snapshots in order, each as `{first, last, at, who, text, hasFailed}`; `last` is the event that names
 * it.
 */
export function snapshotsOf(events) {
  return commitsOf(events).map(({ first, last, at, events: group }) => {
    const entries = readEntries(group);
    const asks = entries.find(({ kind }) => kind === "breakpoint_tool_call");
    const end = asks ?? entries.find(({ kind }) => kind === "task_complete" || kind === "task_error");
    const shown =
      end ?? entries.find(({ message }) => message && message.message.sender.address_type !== "system") ?? entries[0];
    return {
      first,
      last,
      at,
      who: shown.whom ? `${shown.who} → ${shown.whom}` : shown.who || (end ? shown.name : "the task"),
      text: shown.text,
      hasFailed: entries.some(({ tone }) => tone === "bad"),
    };
  });
}

/** Return the index of the moment that holds an event; the last one for null. */
export function indexOf(snapshots, seq) {
  if (seq === null || seq === undefined) return snapshots.length - 1;
  const index = snapshots.findIndex(({ last }) => last >= seq);
  return index < 0 ? snapshots.length - 1 : index;
}

/**
 * Return the event after which a failed task was last in order: the last moment before the turns in a row that
 * failed. Null if there is none, so that only the whole task can be run again.
 */
export function lastGood(snapshots) {
  let index = snapshots.length - 1;
  while (index >= 0 && !snapshots[index].hasFailed) index -= 1;
  while (index >= 0 && snapshots[index].hasFailed) index -= 1;
  return index < 0 ? null : snapshots[index].last;
}

/**
 * Return the message of a person that an event is, `{body, subject, entrypoint, msg_type}`; null for any other event.
 */
export function messageOf(event) {
  const message = envelopeOf(event);
  if (!message || !isFromPerson(message)) return null;
  const { body, subject, recipient, recipients } = message.message;
  return { body, subject, entrypoint: (recipient ?? recipients?.[0])?.address, msg_type: message.msg_type };
}
