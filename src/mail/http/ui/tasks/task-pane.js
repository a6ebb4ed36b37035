// The list of tasks, with search and filter.

import { useStore } from "../app/store.js";
import { formatRoute } from "../app/router.js";
import { StatusChip } from "../components/chip.js";
import { Ago } from "../components/duration.js";
import { SearchField } from "../components/field.js";
import { Excerpt } from "../components/excerpt.js";
import { Icon } from "../components/icons.js";
import { Empty, Loading, Notice } from "../components/notice.js";
import { formatCost } from "../components/usage.js";
import { html, useEffect, useRef, useState } from "../html.js";
import { DateFilter } from "./dates.js";

const STATUSES = ["running", "paused", "completed", "failed", "cancelled"];

/** Milliseconds after the last key before what was typed is searched for. */
const PAUSE = 200;

/** What is left out of a search, by what the server has searched. */
const LIMITS = {
  titles: "This server searches titles and ids only.",
  "some texts": "The server is still reading older tasks: some may be missing.",
};

/** Return what a task waits for its caller for or, if it doesn't, what it has cost. */
function noteOf({ status, pending_tool_calls: calls, question, usage }) {
  if (status === "paused" && calls.length)
    return html`
      <span title=${question}>
        ${calls.some((call) => call.needs_approval && !call.decision) ? "approval" : "question"}
      </span>
    `;
  const cost = formatCost(usage.total);
  return cost === "Price unknown" ? html`<span title=${cost}>$?</span>` : cost.replace("at least ", "≥ ");
}

/** `isStop` tells whether the Tab key leads to it; arrow keys lead to the others. */
function TaskItem({ record, filter, isOpen, isStop }) {
  return html`
    <li>
      <a
        class=${`task-item ${record.status}`}
        href=${`#${formatRoute({ view: "tasks", task: record.task_id, filter })}`}
        aria-current=${isOpen ? "true" : null}
        tabindex=${isStop ? 0 : -1}
        data-task=${record.task_id}>
        <span class="title">${record.title || record.task_id}</span>
        <${Excerpt} pieces=${record.excerpt} />
        <span class="facts">
          <${StatusChip} status=${record.status} />
          <span class="fact-note">${noteOf(record)}</span>
          <${Ago} time=${record.updated} />
        </span>
      </a>
    </li>
  `;
}

/**
 * Return `{stop, list}` for a list of links: `stop` is the id of the one that the Tab key leads to, of the open one or
 * the one that had the focus last; `list` are the attributes with which arrow keys move through it.
 */
export function useStop(ids, open) {
  const items = useRef();
  const [focused, setFocused] = useState(null);
  const stop = [focused, open].find((id) => ids.includes(id)) ?? ids[0];
  const onFocusIn = ({ target: { dataset } }) => setFocused(dataset.task ?? dataset.entry ?? null);
  return { stop, list: { ref: items, onKeyDown: onArrows(items), onFocusIn } };
}

const onArrows = (items) => (event) => {
  const links = [...items.current.querySelectorAll("a")];
  const at = links.indexOf(document.activeElement);
  const next = { ArrowDown: links[at + 1], ArrowUp: links[at - 1], Home: links[0], End: links.at(-1) }[event.key];
  if (!next || event.altKey || event.ctrlKey || event.metaKey) return;
  event.preventDefault();
  next.focus();
};

export function TaskPane({ list, route: { task: open, filter = {} }, caller, navigate }) {
  useStore(list);
  const [search, setSearch] = useState(filter.q ?? "");
  const latest = useRef();
  latest.current = filter; // words that were typed before another choice are searched for after it
  const choose = (change, options) => navigate({ filter: { ...latest.current, ...change } }, options);
  useEffect(() => {
    if (search.trim() === (filter.q ?? "")) return undefined;
    const timer = setTimeout(() => choose({ q: search.trim() }, { replace: true }), PAUSE);
    return () => clearTimeout(timer);
  }, [search]);
  useEffect(() => {
    if (search.trim() !== (filter.q ?? "")) setSearch(filter.q ?? ""); // another address
  }, [filter.q]);
  const shown = list.records;
  const limits = LIMITS[list.searched];
  const ids = shown.map(({ task_id: id }) => id);
  const { stop, list: attributes } = useStop(ids, open);
  const field = useRef();
  const clear = () => {
    setSearch("");
    navigate({ filter: {} });
    field.current.focus(); // the button disappears
  };
  return html`
    <nav class="task-pane" aria-label="Your tasks">
      <div class="task-pane-head">
        <h2>Tasks</h2>
        <a class="button small primary" href=${`#${formatRoute({ view: "tasks", isNew: true, filter })}`}>
          <${Icon} name="plus" />
          New task
        </a>
      </div>
      <div class="task-search">
        <${SearchField} label="Search tasks" field=${field} value=${search} onType=${setSearch} />
        <select
          aria-label="Status"
          value=${filter.status ?? ""}
          onChange=${(event) => choose({ status: event.currentTarget.value })}>
          <option value="">All</option>
          ${STATUSES.map(
            (status) => html`
              <option key=${status} value=${status}>${status[0].toUpperCase() + status.slice(1)}</option>
            `,
          )}
        </select>
        <${DateFilter} value=${filter.changed} onChoose=${(changed) => choose({ changed })} />
      </div>
      ${list.problem && !list.problem.isUnreachable && html`<${Notice} tone="bad">${list.problem.message}</${Notice}>`}
      ${
        (search || list.searched === "some texts") &&
        limits &&
        html`<p class="quiet small-text search-limits">${limits}</p>`
      }
      <ul class="task-items" ...${attributes}>
        ${shown.map(
          (record) => html`
            <${TaskItem}
              key=${record.task_id}
              record=${record}
              filter=${filter}
              isOpen=${record.task_id === open}
              isStop=${record.task_id === stop} />
          `,
        )}
      </ul>
      ${list.isLoading && !list.problem && html`<${Loading} />`}
      ${
        !list.isLoading &&
        !shown.length &&
        html`
          <${Empty} title=${list.isFiltered ? "No tasks match" : "No tasks yet"}>
            ${
              list.isFiltered &&
              html`<button type="button" class="button small" onClick=${clear}>Show all tasks</button>`
            }
            ${
              caller.isAdmin &&
              html`
                <p>
                  These are your own.${" "}
                  <a href=${`#${formatRoute({ view: "admin", page: "tasks" })}`}>All tasks</a>
                  ${" "}has those of all callers.
                </p>
              `
            }
          </${Empty}>
        `
      }
      ${
        list.cursor &&
        html`<button type="button" class="button small older" onClick=${() => list.readOlder()}>Older tasks</button>`
      }
    </nav>
  `;
}
