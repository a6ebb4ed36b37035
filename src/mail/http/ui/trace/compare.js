// A fork beside the task that it was made of: which entries are the same, and where they part.

import { readEntries } from "./entries.js";

/** Entries that only a fork has. */
const ONLY_IN_FORKS = new Set(["task_forked", "history_inherited"]);

/** More entries than this are compared one by one, without a search for those that moved. */
const MOST = 600;

/** Return where a task was forked: `{task_id, at}`, or null for a task that is not a fork. */
export function originOf(events) {
  const forked = events.find(({ event }) => event === "task_forked")?.data.extra_data;
  return forked ? { task_id: forked.forked_from, at: forked.at } : null;
}

/** What makes two entries the same: who did what, not when. */
const keyOf = ({ kind, who, whom, message, event }) => {
  const { tool_name, tool_args } = event.data.extra_data ?? {};
  const said = message
    ? [message.msg_type, message.message.subject, message.message.body]
    : tool_name
      ? [tool_name, JSON.stringify(tool_args)]
      : [event.data.response ?? event.data.description];
  return JSON.stringify([kind, who, whom, ...said]);
};

/**
 * Compare the events of a task and of its fork at event `at`: `{shared, same, parts, rows}`.
 *
 * `shared` counts the entries from before the fork. `rows` are the later ones, in order, as `{left, right, isSame}`;
 * an entry without a counterpart has null on the other side. `parts` is the index of the first row that differs, or
 * null; `same` counts the rows that don't. The mail that waited when the fork was made, and was sent again in it, is
 * not compared.
 */
export function compare(original, fork, at) {
  const left = readEntries(original.filter(({ seq }) => seq > at));
  const waited = new Set(
    readEntries(original.filter(({ seq }) => seq <= at))
      .filter(({ message }) => message)
      .map(keyOf),
  );
  let isBeginning = true;
  const right = readEntries(fork.filter(({ event }) => !ONLY_IN_FORKS.has(event))).filter((entry) => {
    isBeginning &&= Boolean(entry.message) && waited.has(keyOf(entry));
    return !isBeginning;
  });
  const rows = align(left, right);
  const parts = rows.findIndex(({ isSame }) => !isSame);
  return {
    shared: original.length - left.length,
    rows,
    parts: parts < 0 ? null : parts,
    same: rows.filter(({ isSame }) => isSame).length,
  };
}

/** Pair entries: those that are the same in both, in order, as many as possible. */
function align(left, right) {
  const a = left.map(keyOf);
  const b = right.map(keyOf);
  let begin = 0;
  while (begin < a.length && begin < b.length && a[begin] === b[begin]) begin += 1;
  const rows = left.slice(0, begin).map((entry, n) => ({ left: entry, right: right[n], isSame: true }));
  return rows.concat(
    a.length - begin <= MOST && b.length - begin <= MOST
      ? paired(left, right, a, b, begin)
      : side(left.slice(begin), right.slice(begin)),
  );
}

/** Pair what follows `begin` by the longest common subsequence. */
function paired(left, right, a, b, begin) {
  const width = b.length + 1;
  const lengths = new Uint16Array((a.length + 1) * width);
  for (let i = a.length - 1; i >= begin; i -= 1) {
    for (let j = b.length - 1; j >= begin; j -= 1) {
      lengths[i * width + j] =
        a[i] === b[j]
          ? lengths[(i + 1) * width + j + 1] + 1
          : Math.max(lengths[(i + 1) * width + j], lengths[i * width + j + 1]);
    }
  }
  const rows = [];
  let [i, j] = [begin, begin];
  let [lefts, rights] = [[], []];
  const flush = () => {
    rows.push(...side(lefts, rights));
    [lefts, rights] = [[], []];
  };
  while (i < a.length && j < b.length) {
    if (a[i] === b[j]) {
      flush();
      rows.push({ left: left[i++], right: right[j++], isSame: true });
    } else if (lengths[(i + 1) * width + j] >= lengths[i * width + j + 1]) lefts.push(left[i++]);
    else rights.push(right[j++]);
  }
  lefts.push(...left.slice(i));
  rights.push(...right.slice(j));
  flush();
  return rows;
}

/** Put entries that differ side by side. */
function side(left, right) {
  return Array.from({ length: Math.max(left.length, right.length) }, (_, n) => ({
    left: left[n] ?? null,
    right: right[n] ?? null,
    isSame: false,
  }));
}
