// The list of what needs the caller, kept up to date; its count is in the title and the icon of the page, and the
// browser may say what is new.

import * as api from "../api/api.js";
import { pauseAfter, repeat } from "../app/poll.js";
import { Store } from "../app/store.js";

/** Milliseconds between two looks. */
const PAUSE = 20_000;

/** Tasks with calls that are read at once, the oldest. */
const MOST = 50;

const DISMISSED = "mail-dismissed";

/** Entries that this browser remembers as dismissed, the last ones. */
const MOST_DISMISSED = 200;

/** What a dismissed entry is known by: the task comes back when it changes. */
const keyOf = ({ need, task }) => `${need} ${task.task_id} ${task.seq}`;

const readDismissed = () => {
  try {
    return JSON.parse(localStorage.getItem(DISMISSED)) ?? [];
  } catch {
    return [];
  }
};

export const mayAskPermission = () => globalThis.Notification?.permission === "default";
export const askPermission = () => Notification.requestPermission();
const mayNotify = () => globalThis.Notification?.permission === "granted";

export class Waiting extends Store {
  calls = []; // each with the token of who may decide on it
  tasks = []; // {need, reason, task}
  hasMore = false;
  isLoading = true;
  problem = null;
  #asOf = "none"; // of the tasks, if the server can tell whether they have changed
  #dismissed = new Set(readDismissed());
  #known = null; // what was there when it was read last

  /** Begin; returns the function that ends it. */
  start() {
    return repeat(
      () => this.refresh(),
      (failures) => pauseAfter(failures, PAUSE),
      { evenHidden: mayNotify },
    );
  }

  /** Read what waits; returns whether that has succeeded. */
  async refresh() {
    try {
      const own = api.token.get();
      const bearers = new Set([own, api.token.ofAdmin()]); // a person may have both
      const pages = await Promise.all(
        [...bearers].map(async (bearer) => {
          const known = bearer === own ? this.#asOf : undefined;
          return { bearer, ...(await api.read("approvals", { limit: MOST, known }, { bearer })) };
        }),
      );
      const found = new Map();
      for (const { bearer, approvals } of pages)
        for (const call of approvals) if (!found.get(call.id)?.can_decide) found.set(call.id, { ...call, bearer });
      this.calls = [...found.values()].sort((one, other) => (one.id < other.id ? -1 : 1));
      const { tasks, as_of: asOf } = pages.find(({ bearer }) => bearer === own);
      this.tasks = tasks ?? this.tasks; // null for those that are known
      this.#asOf = asOf ?? undefined;
      this.hasMore = pages.some(({ next_cursor: cursor }) => cursor);
      this.problem = null;
      this.#notify();
    } catch (problem) {
      this.problem = problem;
    }
    this.isLoading = false;
    this.changed();
    return !this.problem;
  }

  /** The tasks that need the caller. */
  get needy() {
    return this.tasks.filter((entry) => entry.need !== "others" && !this.#dismissed.has(keyOf(entry)));
  }

  /** The tasks that wait for others. */
  get others() {
    return this.tasks.filter(({ need }) => need === "others");
  }

  /** How many entries need the caller; with a plus if there are more, and empty for none. */
  get count() {
    const count = this.calls.filter((call) => call.can_decide).length + this.needy.length;
    return this.hasMore ? `${count}+` : count || "";
  }

  /** Decide on a call, and read again what waits. */
  async decide({ id, bearer }, decision, facts) {
    await api.request("POST", `approvals/${encodeURIComponent(id)}`, { body: { decision, ...facts }, bearer });
    await this.refresh();
  }

  /** Answer the questions of a task. */
  async answer({ task_id: id }, results) {
    await api.resume(id, { breakpoint_tool_call_result: results });
    await this.refresh();
  }

  /** Process the dead letters of a task again. */
  async redrive({ task_id: id }) {
    await api.redrive(id);
    await this.refresh();
  }

  /** Show an entry no longer in this browser, unless its task changes. */
  dismiss(entry) {
    const others = [...this.#dismissed].filter((key) => key !== keyOf(entry)).slice(1 - MOST_DISMISSED);
    this.#dismissed = new Set([...others, keyOf(entry)]);
    localStorage.setItem(DISMISSED, JSON.stringify([...this.#dismissed]));
    this.changed();
  }

  /** Have the browser say what is new, if the page is not seen and it may. */
  #notify() {
    const found = new Map([
      ...this.calls
        .filter((call) => call.can_decide)
        .map((call) => [call.id, `${call.name} needs your ${call.needs_approval ? "approval" : "answer"}`]),
      ...this.needy.map((entry) => [keyOf(entry), `${entry.task.title || entry.task.task_id}: ${SAID[entry.need]}`]),
    ]);
    const added = this.#known ? [...found].filter(([key]) => !this.#known.has(key)) : [];
    this.#known = new Set(found.keys());
    if (!added.length || document.visibilityState !== "hidden" || !mayNotify()) return;
    const [[key, text]] = added;
    const notification = new Notification("MAIL", {
      body: added.length > 1 ? `${text}, and ${added.length - 1} more` : text,
      tag: key,
    });
    notification.onclick = () => {
      globalThis.focus();
      location.hash = "#approvals";
    };
  }
}

const SAID = { question: "asks you", dead_letters: "has dead letters", failure: "has failed" };

/** Show how much needs the caller in the title and the icon of the page. */
export function mark(title, count) {
  document.title = count ? `(${count}) ${title}` : title;
  const icon = document.querySelector('link[rel="icon"]');
  const href = icon.getAttribute("href").replace(/icon(-marked)?\.svg$/, count ? "icon-marked.svg" : "icon.svg");
  if (icon.getAttribute("href") !== href) icon.setAttribute("href", href);
}
