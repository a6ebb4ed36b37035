// Trying a draft of the swarm on many tasks, and what each came to beside what it was.

import { useStore } from "../app/store.js";
import { formatRoute } from "../app/router.js";
import { Chip } from "../components/chip.js";
import { Ago, formatSeconds } from "../components/duration.js";
import { SearchField, SelectField, TextField } from "../components/field.js";
import { Code } from "../components/json.js";
import { Empty, Notice } from "../components/notice.js";
import { formatCost, sumOf } from "../components/usage.js";
import { plural } from "../components/words.js";
import { useData } from "../components/use-data.js";
import { html, useState } from "../html.js";
import { DateFilter } from "../tasks/dates.js";
import { ACTIONS } from "../trace/fork.js";
import { Page, Small, Table } from "./page.js";
import { draft as readDraft, drafts } from "./requests.js";
import { Tries, lastTasks } from "./tries.js";

const ABOUT =
  "Runs tasks of yours again on a draft of the swarm, as they were after their last message, and compares the " +
  "answers. The tasks themselves stay as they are.";

/** Tasks that are chosen at first. */
const COUNT = 10;
const MOST = 50;

const COLUMNS = [
  ["Task", "wide"],
  ["Before", "wide"],
  ["With the draft", "wide"],
  ["Turns", "number"],
  ["Cost", "number"],
  ["Time", "number"],
];

/** Characters of an answer in the table. */
const SHOWN = 200;

let tries = null;
let owner = "";

/** What a caller tries stays while other views are shown. */
function triesOf({ role, id }) {
  if (owner !== `${role}:${id}`) [owner, tries] = [`${role}:${id}`, new Tries()];
  return tries;
}

export function Drafts({ caller }) {
  const own = triesOf(caller);
  const data = useData(drafts);
  return html`
    <${Page} title="Drafts" about=${ABOUT} data=${data}>
      ${(found) =>
        found.length
          ? html`
              <${Choice} drafts=${found} tries=${own} />
              <${Results} tries=${own} />
            `
          : html`
              <${Empty} title="No drafts yet">
                Open a turn in the trace of a task, and choose “Try another prompt…” in its setup. Or use${" "}
                <code>mail draft save</code>
                .
              </${Empty}>
            `}
    </${Page}>
  `;
}

/** What is tried, and on which tasks. */
function Choice({ drafts: all, tries }) {
  const [name, setName] = useState(() => all.find((draft) => draft.is_current)?.name ?? all[0].name);
  const [asked, setAsked] = useState({ q: "", changed: "", count: COUNT });
  const [left, setLeft] = useState(new Set()); // the tasks that are not ticked
  const [actions, setActions] = useState("refuse");
  const draft = useData(() => readDraft(name), { about: [name] }).data;
  const { data: tasks, problem } = useData(() => lastTasks(asked), { about: [asked] });
  const { isRunning } = useStore(tries);
  const set = (change) => setAsked((before) => ({ ...before, ...change }));
  const toggle = (id) => () => {
    const others = new Set(left);
    if (!others.delete(id)) others.add(id);
    setLeft(others);
  };
  const chosen = (tasks ?? []).filter(({ task_id: id }) => !left.has(id));
  return html`
    <div class="row admin-filters">
      <${SelectField}
        label="Draft"
        id="draft"
        value=${name}
        onChoose=${setName}
        options=${all.map((each) => [each.name, `${each.name}${each.is_current ? "" : " (of an earlier version)"}`])} />
      <${SelectField}
        label="Actions that are not read-only"
        id="draft-actions"
        value=${actions}
        onChoose=${setActions}
        options=${Object.entries(ACTIONS)} />
    </div>
    ${
      draft?.name === name &&
      html`
        <details class="card adding">
          <summary>What ${name} changes</summary>
          <p class="quiet small-text">
            Saved by ${draft.by},${" "}
            <${Ago} time=${draft.at} />
          </p>
          <${Code}
            text=${draft.differences || "The swarm that runs can't take these changes, or has them."}
            colours="diff" />
        </details>
      `
    }
    <fieldset class="card stack">
      <legend>Tasks</legend>
      <div class="row admin-filters">
        <${SearchField} label="Search the tasks" value=${asked.q} onType=${(q) => set({ q })} />
        <${DateFilter} value=${asked.changed} onChoose=${(changed) => set({ changed })} />
        <${TextField}
          label="The last"
          id="draft-count"
          type="number"
          min="1"
          max=${MOST}
          value=${asked.count}
          onType=${(count) => count >= 1 && count <= MOST && set({ count: Number(count) })} />
      </div>
      ${problem && html`<${Notice} tone="bad">${problem.message}</${Notice}>`}
      ${tasks?.length === 0 && html`<p class="quiet">No completed tasks match.</p>`}
      <ul class="ticks">
        ${tasks?.map(
          ({ task_id: id, title, updated }) => html`
            <li key=${id}>
              <label>
                <input type="checkbox" checked=${!left.has(id)} onChange=${toggle(id)} />
                <span>${title || id}</span>
                <span class="quiet small-text"><${Ago} time=${updated} /></span>
              </label>
            </li>
          `,
        )}
      </ul>
    </fieldset>
    <p class="row">
      <button
        type="button"
        class="button primary"
        disabled=${!chosen.length || isRunning}
        onClick=${() => void tries.run(name, chosen, actions)}>
        Run ${plural(chosen.length, "task")}
      </button>
      ${isRunning && html`<button type="button" class="button" onClick=${() => tries.stop()}>Begin no more</button>`}
    </p>
  `;
}

/** What each task came to; it fills as they end. */
function Results({ tries }) {
  const { rows, compared, draft } = useStore(tries);
  if (!rows.length) return null;
  const ended = rows.filter(({ comparison, problem }) => comparison || problem).length;
  const [before, after] = ["before", "after"].map((side) => sumOf(compared.map((each) => each[side])));
  return html`
    <h3>On ${draft}</h3>
    <p class="quiet small-text" role="status">${ended} of ${rows.length} are done.</p>
    <${Table}
      label=${`Tasks on ${draft}`}
      columns=${COLUMNS}
      rows=${[
        ...rows.map(({ task, ...row }) => [
          task.task_id,
          html`<${Title} task=${task} ...${row} />`,
          row.comparison && html`<${Answer} outcome=${row.comparison.before} />`,
          html`<${After} ...${row} />`,
          ...(row.comparison ? numbers(row.comparison) : ["", "", ""]),
        ]),
        ...(compared.length
          ? [["all", html`<strong>All ${compared.length}</strong>`, "", "", ...numbers({ before, after })]]
          : []),
      ]} />
  `;
}

const numbers = ({ before, after }) =>
  [({ turns }) => turns, (each) => formatCost(each) || "–", ({ seconds }) => formatSeconds(seconds)].map(
    (of) => html`${of(before)} → ${of(after)}`,
  );

/** The name of a task leads to the comparison, entry by entry, or to the task itself if there is none. */
function Title({ task: { task_id: id, title }, comparison, fork }) {
  const route = comparison ? { task: fork, tab: "trace", isComparing: true } : { task: id };
  return html`<a href=${`#${formatRoute({ view: "tasks", ...route })}`}>${title || id}</a>`;
}

const Answer = ({ outcome: { answer, status } }) =>
  status === "completed" && answer !== null
    ? html`<span class="preserved">${answer.slice(0, SHOWN)}${answer.length > SHOWN && "…"}</span>`
    : html`
        <${Chip}>${status}</${Chip}>
        ${answer && html`<${Small}>${answer.slice(0, SHOWN)}</${Small}>`}
      `;

function After({ comparison, fork, problem }) {
  if (problem)
    return html`
      <${Chip} tone="bad">refused</${Chip}>
      <${Small}>${problem.message}</${Small}>
    `;
  if (!comparison) return html`<${Chip} tone=${fork ? "busy" : "plain"} dot>${fork ? "runs" : "waits"}</${Chip}>`;
  const { before, after, differences } = comparison;
  return html`
    <${Answer} outcome=${after} />
    ${after.answer !== null && after.answer === before.answer && html`<${Small}>the same</${Small}>`}
    ${
      differences &&
      html`
        <details>
          <summary>Differences</summary>
          <${Code} text=${differences} colours="diff" label="Copy the differences" />
        </details>
      `
    }
  `;
}
