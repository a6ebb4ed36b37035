// Tasks that are run again on a draft, a few at a time, and what each came to.

import * as api from "../api/api.js";
import { Store } from "../app/store.js";
import { timesOf } from "../tasks/dates.js";

/** Tasks that run at the same time. */
const AT_ONCE = 4;

/** Milliseconds between two looks at a task that runs. */
const PAUSE = 1_000;

/** Tasks on a page of those that match. */
const PAGE = 50;

/** Return the last `count` completed tasks that match, without forks. */
export async function lastTasks({ q, changed, count }) {
  const found = [];
  let cursor;
  do {
    const query = { q, ...timesOf(changed), status: "completed", forks: false, limit: PAGE, cursor };
    const page = await api.tasks(query);
    found.push(...page.records);
    cursor = page.cursor;
  } while (cursor && found.length < count);
  return found.slice(0, count);
}

export class Tries extends Store {
  draft = "";
  rows = []; // {task, fork, comparison, problem}: what is not there yet is undefined
  #waiting = [];

  get isRunning() {
    return this.rows.some(({ comparison, problem }) => !comparison && !problem);
  }

  get compared() {
    return this.rows.map(({ comparison }) => comparison).filter(Boolean);
  }

  /** Run tasks again, as they were after their last message; `actions` is what becomes of calls that change things. */
  async run(draft, tasks, actions) {
    Object.assign(this, { draft, rows: tasks.map((task) => ({ task })) });
    const waiting = (this.#waiting = [...this.rows]);
    this.changed();
    const work = async () => {
      for (let row; (row = waiting.shift());) {
        try {
          await this.#try(row, { draft, actions, run: true });
        } catch (problem) {
          row.problem = problem;
        }
        this.changed();
      }
    };
    await Promise.all(Array.from({ length: AT_ONCE }, work));
  }

  /** Begin no more tasks. */
  stop() {
    this.rows = this.rows.filter((row) => !this.#waiting.includes(row));
    this.#waiting.length = 0;
    this.changed();
  }

  async #try(row, options) {
    row.fork = await api.fork(row.task.task_id, "message", options);
    this.changed();
    for (;;) {
      try {
        const { status } = await api.read("task", { task_id: row.fork, fields: "summary" });
        if (status !== "running") {
          row.comparison = await api.read("task/comparison", { task_id: row.fork });
          return;
        }
      } catch (problem) {
        if (problem.permanent) throw problem; // otherwise it is asked again
      }
      await new Promise((resolve) => setTimeout(resolve, PAUSE));
    }
  }
}
