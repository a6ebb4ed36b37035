// The tasks of all callers.

import { StatusChip } from "../components/chip.js";
import { Ago } from "../components/duration.js";
import { Empty } from "../components/notice.js";
import { formatCost } from "../components/usage.js";
import { html, useState } from "../html.js";
import { Field, More, Page, Small, Table, useData } from "./page.js";
import { allTasks } from "./requests.js";

const PAGE = 50;
const MOST = 1000;
const COLUMNS = [["Task", "wide"], ["Caller"], ["State"], ["Started", "nowrap"], ["Entries", "number"], ["Cost", "number"]];
const STATES = ["running", "paused", "completed", "failed", "cancelled"];

/** Return `role:id` of a task's owner, `role:id@swarm`. */
export const callerOf = (owner) => owner.slice(0, owner.lastIndexOf("@"));

export function AllTasks({ caller }) {
  const [status, setStatus] = useState("");
  const [search, setSearch] = useState("");
  const [limit, setLimit] = useState(PAGE);
  const data = useData(() => allTasks({ status, limit }), { about: [status, limit], every: 5 });
  const mine = `${caller.role}:${caller.id}`;
  const matches = ({ title, task_id: id, task_owner: owner }) =>
    [title ?? "", id, owner].some((text) => text.toLowerCase().includes(search.trim().toLowerCase()));
  return html`<${Page} title="All tasks" about="Tasks of all callers, newest first. Of others' tasks you see the title, not the messages." data=${data}>${({ tasks, hasMore }) => {
    const shown = tasks.filter(matches);
    return html`
      <div class="row admin-filters">
        <${Field} label="State" id="all-status"><select id="all-status" value=${status} onChange=${(event) => setStatus(event.currentTarget.value)}>
          <option value="">All</option>${STATES.map((state) => html`<option value=${state}>${state}</option>`)}
        </select><//>
        <${Field} label="Search" id="all-search"><input id="all-search" type="search" placeholder="Title, id or caller" value=${search} onInput=${(event) => setSearch(event.currentTarget.value)} /><//>
      </div>
      ${shown.length
        ? html`<${Table} label="Tasks of all callers" columns=${COLUMNS} rows=${shown.map((task) => [
            `${task.task_owner}#${task.task_id}`,
            html`<${Title} task=${task} isMine=${callerOf(task.task_owner) === mine} />`,
            callerOf(task.task_owner),
            html`<span class="row"><${StatusChip} status=${task.status} /><${Dead} count=${task.dead_letters.length} /></span>`,
            html`<${Ago} time=${task.start_time} />`,
            task.seq.toLocaleString("en"),
            formatCost(task.usage.total) || "–",
          ])} />`
        : html`<${Empty} title=${tasks.length ? "No task matches" : "No tasks yet"} />`}
      <${More} hasMore=${hasMore && limit < MOST} onClick=${() => setLimit(Math.min(MOST, limit + PAGE))} />
    `;
  }}<//>`;
}

function Title({ task, isMine }) {
  const title = task.title || "Untitled";
  return html`${isMine ? html`<a href=${`#task=${encodeURIComponent(task.task_id)}`}>${title}</a>` : html`<span>${title}</span>`}<${Small}>${task.task_id}<//>`;
}

const Dead = ({ count }) => count > 0 && html`<a class="small-text nowrap" href="#admin=dead-letters">${count === 1 ? "1 dead letter" : `${count} dead letters`}</a>`;
