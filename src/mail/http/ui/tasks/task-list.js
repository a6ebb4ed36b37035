// The caller's tasks, the last changed first, kept up to date while the page is visible; after failures, it is read
// less often.

import * as api from "../api/api.js";
import { isVisible, pauseAfter } from "../app/poll.js";
import { Store } from "../app/store.js";
import { timesOf } from "./dates.js";

/** Milliseconds between two looks: while something happens or a person is here, and otherwise. */
const QUICK = 3_000;
const SLOW = 15_000;

/** Milliseconds without a key or a click after which nobody is here. */
const ABSENCE = 300_000;

export class TaskList extends Store {
  records = [];
  searched = "texts"; // what the server has searched
  #order = "updated"; // the time that they are sorted by
  cursor = null; // of the page after the last one that is here
  isLoading = true;
  problem = null;
  #timer = null;
  #isStopped = false;
  #reading = 0; // counts the readings, so that the latest one wins
  #failures = 0; // in a row
  #seenAt = Date.now();
  #onProblem = () => {};

  /** `given` are the words, the status and the dates of the tasks, as in the address: `{q, status, changed}`. */
  constructor(given = {}) {
    super();
    this.given = given;
  }

  /** Begin; `onProblem` is called with each `Problem`. */
  start(onProblem) {
    this.#onProblem = onProblem;
    for (const sign of ["keydown", "pointerdown"]) globalThis.addEventListener(sign, this.#onSign);
    for (const sign of ["focus", "visibilitychange"]) globalThis.addEventListener(sign, this.#onShow);
    void this.refresh();
  }

  stop() {
    this.#isStopped = true;
    clearTimeout(this.#timer);
    for (const sign of ["keydown", "pointerdown"]) globalThis.removeEventListener(sign, this.#onSign);
    for (const sign of ["focus", "visibilitychange"]) globalThis.removeEventListener(sign, this.#onShow);
  }

  #onSign = () => (this.#seenAt = Date.now());

  /** Read the list when the page is seen again; while it is hidden, nothing is read. */
  #onShow = () => {
    clearTimeout(this.#timer);
    if (!isVisible()) return;
    this.#seenAt = Date.now();
    void this.refresh();
  };

  find(id) {
    return this.records.find(({ task_id }) => task_id === id);
  }

  /** Show a task as its session has just read it. */
  put(record) {
    const at = this.records.findIndex(({ task_id }) => task_id === record.task_id);
    if (
      at < 0 &&
      (this.isLoading || this.isFiltered || (this.cursor && record[this.#order] < this.records.at(-1)?.[this.#order]))
    )
      return;
    const known = this.records[at];
    if (known && (known.seq > record.seq || (known.seq === record.seq && known.status === record.status))) return;
    const others = this.records.filter(({ task_id }) => task_id !== record.task_id);
    this.records = [...others, { ...record, excerpt: known?.excerpt }].sort(api.byLatest(this.#order));
    this.changed();
  }

  /** Show a task no longer, as it was deleted. */
  drop(id) {
    this.records = this.records.filter(({ task_id }) => task_id !== id);
    this.changed();
  }

  get isFiltered() {
    return Object.keys(this.given).length > 0;
  }

  /** Show only the tasks that are `given`. */
  filter(given) {
    if (JSON.stringify(given) === JSON.stringify(this.given)) return;
    Object.assign(this, { given, records: [], cursor: null, isLoading: true });
    this.changed();
    void this.refresh();
  }

  #tasks(cursor) {
    const { changed, ...others } = this.given;
    return api.tasks({ ...others, ...timesOf(changed), cursor });
  }

  /** Read the latest tasks again; those of older pages stay as they are. */
  async refresh() {
    await this.#read(async () => {
      const { records, cursor, searched, order } = await this.#tasks();
      return () => {
        Object.assign(this, { searched });
        this.#order = order;
        const oldest = records.at(-1)?.[order] ?? "";
        const isFirstPage = !cursor || this.records.length <= records.length;
        const here = new Set(records.map(({ task_id }) => task_id));
        const older = isFirstPage
          ? []
          : this.records.filter((record) => record[order] < oldest && !here.has(record.task_id));
        this.records = [...records, ...older];
        if (isFirstPage) this.cursor = cursor;
      };
    });
  }

  /** Read the next page of older tasks. */
  async readOlder() {
    await this.#read(async () => {
      const { records, cursor } = await this.#tasks(this.cursor);
      return () => {
        const here = new Set(this.records.map(({ task_id }) => task_id));
        this.records = [...this.records, ...records.filter(({ task_id }) => !here.has(task_id))];
        this.cursor = cursor;
      };
    });
  }

  async #read(work) {
    const reading = ++this.#reading;
    clearTimeout(this.#timer);
    try {
      const apply = await work();
      if (reading !== this.#reading || this.#isStopped) return;
      apply();
      Object.assign(this, { isLoading: false, problem: null });
      this.#failures = 0;
    } catch (problem) {
      if (reading !== this.#reading || this.#isStopped) return;
      this.problem = problem;
      this.#failures += 1;
      this.#onProblem(problem);
    }
    this.changed();
    const isLively = Date.now() - this.#seenAt < ABSENCE || this.records.some(({ status }) => status === "running");
    if (isVisible())
      this.#timer = setTimeout(() => void this.refresh(), pauseAfter(this.#failures, isLively ? QUICK : SLOW));
  }
}
