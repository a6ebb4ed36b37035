// The task that is open: its record, its timeline as it grows, and its questions.

import * as api from "./api.js";
import { $, h, pretty } from "./dom.js";
import { TIERS, recipientsOf } from "./events.js";
import { Working, isLive } from "./live.js";
import { follow } from "./sse.js";
import { Timeline } from "./timeline.js";

/** Milliseconds after which a running task's record is read again: it has all events, so not for each of them. */
const REFRESH = 3_000;

const SECOND = 1_000;

/** Where the task stands below the list, as in style.css. */
const NARROW = matchMedia("(max-width: 50rem)");

const COLUMNS = { calls: "calls", input_tokens: "in", cached_tokens: "cached", output_tokens: "out", reasoning_tokens: "reasoning", cost: "cost in $" };

function usageTable({ total, agents, models }) {
  const row = (name, usage, tag) =>
    h("tr", {}, h("th", { scope: "row" }, name), Object.keys(COLUMNS).map((column) => h(tag, {}, String(usage[column] ?? 0))));
  return h(
    "table",
    {},
    h("thead", {}, h("tr", {}, h("th", { scope: "col" }, "agent"), Object.values(COLUMNS).map((title) => h("th", { scope: "col" }, title)))),
    h("tbody", {}, Object.entries(agents).map(([name, usage]) => row(name, usage, "td")), row("all", total, "td")),
    h(
      "tbody",
      {},
      h("tr", {}, h("th", { scope: "rowgroup", colspan: Object.keys(COLUMNS).length + 1 }, "by model")),
      Object.entries(models).map(([name, usage]) => row(name, usage, "td")),
    ),
  );
}

/** A call that waits for approval; `decide` gets the part of the page with it, and the decision. */
function approval(call, index, decide) {
  const [id, reason] = [`arguments-${index}`, `reason-${index}`];
  const button = (name, decision) =>
    h("button", { type: "button", onclick: ({ currentTarget }) => decide(currentTarget.closest(".call"), decision) }, name);
  return h(
    "div",
    { class: "call", "data-approval": call.call_id, "data-given": pretty(call.arguments) },
    h("p", {}, h("strong", {}, call.name), " needs your approval."),
    h("label", { for: id }, `Arguments of ${call.name}, which you may change`),
    h("textarea", { id, rows: 3, class: "arguments" }, pretty(call.arguments)),
    h("label", { for: reason }, "Reason, which the agent reads if you reject it"),
    h("input", { id: reason, class: "reason", maxlength: 1000 }),
    h("div", { class: "row" }, button("Approve", "approve"), button("Reject", "reject")),
  );
}

/** The decision on a call with what stands in its part of the page; throws for arguments that are no JSON. */
function approvalIn(part, decision) {
  const call_id = part.dataset.approval;
  const reason = part.querySelector(".reason").value;
  if (decision === "reject") return { call_id, decision, ...(reason ? { reason } : {}) };
  const text = part.querySelector(".arguments").value;
  if (text === part.dataset.given) return { call_id, decision };
  try {
    return { call_id, decision: "edit", arguments: JSON.parse(text) };
  } catch {
    throw new api.Problem(400, "The arguments are not JSON.");
  }
}

function question(call, index, decide) {
  if (call.needs_approval) return approval(call, index, decide);
  const id = `result-${index}`;
  return h(
    "div",
    { class: "call" },
    h("p", {}, h("strong", {}, call.name), " was called with:"),
    h("pre", {}, pretty(call.arguments)),
    h("label", { for: id }, `Result of ${call.name}`),
    h("textarea", { id, rows: 2, required: true, "data-call": call.call_id }),
  );
}

export class TaskView {
  #stop = new AbortController();
  #isFollowing = false;
  #asked = "";
  #readAt = 0;
  #at = undefined;
  #working = new Working();

  /**
   * `hooks`: `onLine` for a new line, `onRecord` for each record that was read, `onProblem` for what goes wrong,
   * `onReached` whenever the server answers.
   */
  constructor(id, hooks) {
    this.id = id;
    this.hooks = hooks;
    this.timeline = new Timeline(hooks.onLine);
    $("moment").value = "";
    this.connection("");
    this.#showWorking();
  }

  connection(state) {
    $("connection").textContent = state;
  }

  /** Shows what there is of the task, then follows it; one that has only just begun, from its first event on. */
  async open({ isNew }) {
    if (!isNew) await this.#read({ isNew: false });
    await this.watch();
  }

  close() {
    this.#stop.abort();
  }

  /** Follows the task until it stops, from the last line on; once more after each message to it. */
  async watch() {
    this.#stop.abort();
    const stop = (this.#stop = new AbortController());
    const open = async (after, signal) => {
      const response = await api.stream(this.id, after, signal);
      this.hooks.onReached();
      return response;
    };
    const onState = (state) => this.connection(state === "live" ? "● live" : "reconnecting…");
    let isUpToDate = Boolean(this.record);
    this.#isFollowing = true;
    this.#working.clear();
    const clock = setInterval(() => this.#showWorking(), SECOND);
    try {
      for await (const event of follow(open, { after: this.timeline.last, signal: stop.signal, onState })) {
        if (stop.signal.aborted) return;
        if (event.event === "ping") continue;
        if (isLive(event)) {
          this.#working.read(event.event, JSON.parse(event.data).extra_data, Date.now());
          this.#showWorking();
          continue;
        }
        isUpToDate = false;
        const line = this.timeline.add({ ...event, data: JSON.parse(event.data) }, { isNew: true });
        if (line.terminal || Date.now() - this.#readAt > REFRESH) {
          await this.#read({ isNew: true });
          isUpToDate = line.terminal;
        }
      }
      if (!stop.signal.aborted && !isUpToDate) await this.#read({ isNew: true });
    } catch (error) {
      if (!stop.signal.aborted) this.hooks.onProblem(error);
    } finally {
      clearInterval(clock);
    }
    if (stop.signal.aborted) return;
    this.#working.clear();
    this.#showWorking();
    this.#isFollowing = false;
    this.connection("");
  }

  #showWorking() {
    const line = this.#working.line(Date.now());
    $("working").textContent = line;
    $("working").hidden = !line;
  }

  /** Follows the task again, where somebody has gone on with it since it stopped. */
  async look() {
    if (this.record && !this.#isFollowing) await this.watch();
  }

  /** Reads the task again, and follows it after it was resumed. */
  async refresh() {
    await this.#read({ isNew: true });
    void this.look();
  }

  /** Cancels the task; the timeline tells what becomes of it. */
  async cancel() {
    await api.cancel(this.id);
    await this.refresh();
  }

  /** Shows the task as it was once an event had happened, or (undefined) as it is; the timeline grows on. */
  async lookAt(seq) {
    const past = seq === undefined ? null : await api.task(this.id, seq);
    this.#at = seq;
    if (past) this.#display(past);
    else await this.#read({ isNew: true });
    const until = seq === undefined ? Infinity : Number($("timeline").dataset.seq);
    for (const line of $("timeline").children) line.classList.toggle("later", Number(line.dataset.seq) > until);
  }

  /** Makes a task that continues from the event that is shown; returns its id. */
  fork() {
    return api.fork(this.id, this.#at);
  }

  async #read({ isNew }) {
    const stop = this.#stop;
    this.#readAt = Date.now();
    const record = await api.task(this.id);
    if (stop.signal.aborted) return;
    for (const event of record.events) this.timeline.add({ ...event, data: JSON.parse(event.data) }, { isNew });
    this.#show(record);
    this.hooks.onRecord(record);
  }

  #show(record) {
    const isFirst = !this.record;
    this.record = record;
    $("task").hidden = false;
    if (isFirst && NARROW.matches) $("task").scrollIntoView();
    if (this.#at === undefined) this.#display(record);
  }

  #display(record) {
    const isPast = this.#at !== undefined;
    $("timeline").dataset.seq = record.seq;
    $("task-title").textContent = record.title || record.task_id;
    $("task-status").textContent = record.status;
    $("task-status").className = `chip ${record.status}`;
    const facts = [record.task_id, `to ${record.entrypoint}`, `${record.steps} of ${record.max_steps} steps`];
    if (record.generation > 1) facts.push(`generation ${record.generation}`);
    if (record.remote_swarms.length) facts.push(`with ${record.remote_swarms.join(", ")}`);
    $("task-facts").textContent = facts.join(" · ");
    $("usage").hidden = !record.usage.total.calls;
    $("usage-table").replaceChildren(usageTable(record.usage));
    $("mailboxes").hidden = !record.task_message_queue.length;
    $("mail").replaceChildren(
      ...record.task_message_queue.map(({ mailbox, priority, message }) =>
        h("li", {}, h("span", { class: `tier tier-${priority}` }, `${priority} ${TIERS[priority]}`), ` ${message.message.sender.address} → ${mailbox || recipientsOf(message).join(", ")}: ${message.message.subject}`),
      ),
    );
    $("cancel").hidden = isPast || !["running", "paused"].includes(record.status);
    this.#ask(record.status === "paused" && !isPast ? record.pending_tool_calls : []);
  }

  /** The form for results, kept as it is while the same calls wait. */
  #ask(calls) {
    calls = calls.filter((call) => !call.decision);
    const asked = JSON.stringify(calls.map((call) => call.call_id));
    $("breakpoint").hidden = !calls.length;
    if (asked === this.#asked && $("calls").childElementCount) return;
    this.#asked = asked;
    $("results").hidden = calls.every((call) => call.needs_approval);
    $("calls").replaceChildren(...calls.map((call, index) => question(call, index, (part, decision) => this.#decide(part, decision))));
  }

  /** Gives the results that stand in the form. */
  async answer() {
    const fields = [...$("calls").querySelectorAll("[data-call]")];
    const results = fields.map((field) => ({ call_id: field.dataset.call, content: field.value }));
    await this.#resume({ breakpoint_tool_call_result: results });
  }

  /** Approves or rejects one call. */
  async #decide(part, decision) {
    const buttons = part.querySelectorAll("button");
    for (const button of buttons) button.disabled = true;
    try {
      await this.#resume({ approvals: [approvalIn(part, decision)] });
    } catch (problem) {
      this.hooks.onProblem(problem);
    } finally {
      for (const button of buttons) button.disabled = false;
    }
  }

  async #resume(kwargs) {
    try {
      await api.send({
        body: "",
        task_id: this.id,
        resume_from: "breakpoint_tool_call",
        kwargs,
      });
    } catch (problem) {
      if (problem.permanent) await this.refresh(); // somebody else may have been faster
      throw problem;
    }
    void this.watch();
  }
}
