// The tasks of all callers.

import { StatusChip } from "../components/chip.js";
import { Ago } from "../components/duration.js";
import { SelectField, TextField } from "../components/field.js";
import { Empty } from "../components/notice.js";
import { formatCost } from "../components/usage.js";
import { useData } from "../components/use-data.js";
import { count, plural } from "../components/words.js";
import { html, useState } from "../html.js";
import { OpenedDialog } from "./opened.js";
import { More, Page, RowButton, Small, Table, useActs } from "./page.js";
import { allTasks, cancelTask } from "./requests.js";
import { TurnsDialog } from "./turns.js";

const ABOUT =
  "Tasks of all callers, newest first. You can stop others' tasks and see their turns. Where the server allows it, " +
  "you can read them, too, for a reason that their owners see.";

const PAGE = 50;
const MOST = 1000;
const COLUMNS = [
  ["Task", "wide"],
  ["Caller"],
  ["State"],
  ["Started", "nowrap optional"],
  ["Entries", "number optional"],
  ["Cost", "number"],
  ["", "actions"],
];
const CANCELLABLE = new Set(["running", "paused"]);
const STATES = [
  ["", "All"],
  ...["running", "paused", "completed", "failed", "cancelled"].map((state) => [state, state]),
];

/** Return `role:id` of a task's owner, `role:id@swarm`; an audit has names without a swarm, too (`operator`). */
export const callerOf = (owner) => /^(.*)@/s.exec(owner)?.[1] ?? owner;

const keyOf = (task) => `${task.task_owner}#${task.task_id}`;

export function AllTasks({ caller }) {
  const [status, setStatus] = useState("");
  const [search, setSearch] = useState("");
  const [limit, setLimit] = useState(PAGE);
  const data = useData(() => allTasks({ status, limit }), { about: [status, limit], every: 5 });
  const [open, setOpen] = useState(null); // the task whose turns are shown
  const [read, setRead] = useState(null); // the one of another caller that is read
  const { said, ask } = useActs(data);
  const cancel = (task) => {
    const children = html`
      <p>
        <strong>${task.title || task.task_id}</strong>
        ${" "}of ${callerOf(task.task_owner)} stops.
      </p>
      <p>
        No turn begins any more, and the results of those that run are discarded. A new message of its owner resumes it.
      </p>
      <p>Its timeline and the server's log say that you have cancelled it.</p>
    `;
    ask(
      { title: "Cancel this task?", action: "Cancel the task", children },
      () => cancelTask({ task_id: task.task_id, caller: callerOf(task.task_owner) }),
      () => `${task.title || task.task_id} is cancelled.`,
    );
  };
  const mine = `${caller.role}:${caller.id}`;
  const matches = ({ title, task_id: id, task_owner: owner }) =>
    [title ?? "", id, owner].some((text) => text.toLowerCase().includes(search.trim().toLowerCase()));
  return html`
    <${Page} title="All tasks" about=${ABOUT} data=${data}>
      ${({ tasks, hasMore }) => {
        const shown = tasks.filter(matches);
        return html`
          ${said}
          <div class="row admin-filters">
            <${SelectField} label="State" id="all-status" value=${status} onChoose=${setStatus} options=${STATES} />
            <${TextField}
              label="Search"
              id="all-search"
              type="search"
              placeholder="Title, id or caller"
              value=${search}
              onType=${setSearch} />
          </div>
          <${Table}
            label="Tasks of all callers"
            none=${html`<${Empty} title=${tasks.length ? "No task matches" : "No tasks yet"} />`}
            columns=${COLUMNS}
            rows=${shown.map((task) => [
              keyOf(task),
              html`<${Title} task=${task} isMine=${callerOf(task.task_owner) === mine} />`,
              callerOf(task.task_owner),
              html`
                <span class="row">
                  <${StatusChip} status=${task.status} />
                  <${Dead} count=${task.dead_letters.length} />
                </span>
              `,
              html`<${Ago} time=${task.start_time} />`,
              count(task.seq),
              formatCost(task.usage.total) || "–",
              html`
                <${RowButton} label=${`Turns of ${task.title || task.task_id}`} onClick=${() => setOpen(task)}>
                  Turns
                </${RowButton}>
                ${
                  callerOf(task.task_owner) !== mine &&
                  html`
                    <${RowButton} label=${`Read ${task.title || task.task_id}`} onClick=${() => setRead(task)}>
                      Read…
                    </${RowButton}>
                  `
                }
                ${
                  CANCELLABLE.has(task.status) &&
                  html`
                    <${RowButton} label=${`Cancel ${task.title || task.task_id}`} onClick=${() => cancel(task)}>
                      Cancel
                    </${RowButton}>
                  `
                }
              `,
            ])} />
          <${More} hasMore=${hasMore && limit < MOST} onClick=${() => setLimit(Math.min(MOST, limit + PAGE))} />
          ${
            open &&
            html`
              <${TurnsDialog}
                task=${tasks.find((task) => keyOf(task) === keyOf(open)) ?? open}
                caller=${callerOf(open.task_owner)}
                onClose=${() => setOpen(null)} />
            `
          }
          ${
            read &&
            html`<${OpenedDialog} task=${read} caller=${callerOf(read.task_owner)} onClose=${() => setRead(null)} />`
          }
        `;
      }}
    </${Page}>
  `;
}

function Title({ task, isMine }) {
  const title = task.title || "Untitled";
  return html`
    ${isMine ? html`<a href=${`#task=${encodeURIComponent(task.task_id)}`}>${title}</a>` : html`<span>${title}</span>`}
    <${Small}>${task.task_id}</${Small}>
  `;
}

const Dead = ({ count }) =>
  count > 0 && html`<a class="small-text nowrap" href="#admin=dead-letters">${plural(count, "dead letter")}</a>`;
