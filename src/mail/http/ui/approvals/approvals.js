// What waits for a decision of the caller: the calls in its own tasks, and those in others' that it may review.

import * as api from "../api/api.js";
import { formatRoute } from "../app/router.js";
import { repeat, pauseAfter } from "../app/poll.js";
import { Store, useStore } from "../app/store.js";
import { Ago } from "../components/duration.js";
import { Empty, Guard, Loading, Notice } from "../components/notice.js";
import { Approval } from "../conversation/question.js";
import { html } from "../html.js";

/** Milliseconds between two looks. */
const PAUSE = 20_000;

/** Tasks that are read at once, the oldest. */
const MOST = 50;

export class Waiting extends Store {
  calls = []; // each with the token of who may decide on it
  hasMore = false;
  isLoading = true;
  problem = null;

  /** Begin; returns the function that ends it. */
  start() {
    return repeat(
      () => this.refresh(),
      (failures) => pauseAfter(failures, PAUSE),
    );
  }

  /** Read what waits; returns whether that has succeeded. */
  async refresh() {
    try {
      const bearers = new Set([api.token.get(), api.token.ofAdmin()]); // a person may have both
      const pages = await Promise.all(
        [...bearers].map(async (bearer) => ({ bearer, ...(await api.read("approvals", { limit: MOST }, { bearer })) })),
      );
      const found = new Map();
      for (const { bearer, approvals } of pages)
        for (const call of approvals) if (!found.get(call.id)?.can_decide) found.set(call.id, { ...call, bearer });
      this.calls = [...found.values()].sort((one, other) => (one.id < other.id ? -1 : 1));
      this.hasMore = pages.some(({ next_cursor: cursor }) => cursor);
      this.problem = null;
    } catch (problem) {
      this.problem = problem;
    }
    this.isLoading = false;
    this.changed();
    return !this.problem;
  }

  /** The number that the page shows beside its link; empty for none. */
  get count() {
    const count = this.calls.filter((call) => call.can_decide).length;
    return this.hasMore ? `${count}+` : count || "";
  }

  /** Decide on a call, and read again what waits. */
  async decide({ id, bearer }, decision, facts) {
    await api.request("POST", `approvals/${encodeURIComponent(id)}`, { body: { decision, ...facts }, bearer });
    await this.refresh();
  }
}

export function Approvals({ waiting }) {
  useStore(waiting);
  const { calls, hasMore, isLoading, problem } = waiting;
  return html`
    <section class="approvals" aria-labelledby="approvals-title">
      <h2 id="approvals-title">Approvals</h2>
      ${problem && html`<${Notice} tone="bad">${problem.message}</${Notice}>`}
      ${isLoading && html`<${Loading} />`}
      ${
        !isLoading &&
        !calls.length &&
        !problem &&
        html`<${Empty} title="Nothing waits for you">Calls that need an approval appear here.</${Empty}>`
      }
      ${calls.map(
        (call) => html`
          <${Guard} key=${call.id}>
            <div>
              <p class="quiet small-text">
                Asked for by ${call.requested_by},${" "}
                <${Ago} time=${call.asked} />
                ${
                  call.task_id &&
                  html`
                    ,${" "}
                    <a href=${`#${formatRoute({ view: "tasks", task: call.task_id })}`}>show the task</a>
                  `
                }
              </p>
              <${Approval}
                item=${{ ...call, call_id: call.id }}
                call=${call}
                session=${{ decide: (_, decision, facts) => waiting.decide(call, decision, facts) }} />
            </div>
          </${Guard}>
        `,
      )}
      ${hasMore && html`<p class="quiet">More wait behind these.</p>`}
    </section>
  `;
}
