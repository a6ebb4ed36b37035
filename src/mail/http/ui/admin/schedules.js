// The schedules of all callers: when each runs next, and how its last runs have ended.

import { Chip } from "../components/chip.js";
import { Ago } from "../components/duration.js";
import { Empty } from "../components/notice.js";
import { useData } from "../components/use-data.js";
import { html } from "../html.js";
import { Adding, Page, RowButton, Small, Table, useActs } from "./page.js";
import { callerOf } from "./all-tasks.js";
import { changeSchedule, deleteSchedule, runSchedule, schedules } from "./requests.js";

const COLUMNS = [["Schedule", "wide"], ["Caller"], ["Next", "nowrap"], ["Last runs", "wide"], ["", "actions"]];
const TONES = { completed: "good", failed: "bad", running: "busy", starting: "busy" };
const SHOWN = 3;

export function Schedules() {
  const data = useData(schedules, { every: 15 });
  const { said, act, ask } = useActs(data);
  const run = ({ name }) =>
    act(
      () => runSchedule(name),
      ({ task_id: id, state, reason }) =>
        state === "failed" ? [`The run was refused: ${reason}`, { tone: "bad" }] : `The run ${id} has begun.`,
    );
  const toggle = ({ name, enabled }) =>
    act(
      () => changeSchedule(name, { enabled: !enabled }),
      () => `${name} is ${enabled ? "disabled" : "enabled"}.`,
    );
  const remove = ({ name }) => {
    const children = html`<p class="breakable">${name} begins no more runs. The tasks of its runs stay.</p>`;
    ask(
      { title: "Delete this schedule?", action: "Delete", children },
      () => deleteSchedule(name),
      () => `${name} is deleted.`,
    );
  };
  return html`
    <${Page}
      title="Schedules"
      about="Messages that the server posts at certain times, as one of its callers."
      data=${data}>
      ${(found) => html`
        ${said}
        <${Adding}
          title="Create a schedule"
          command=${'mail schedule create morning "30 8 * * mon-fri" "What is new?" --timezone Europe/Berlin'} />
        <${Table}
          label="Schedules"
          none=${html`<${Empty} title="No schedules yet" />`}
          columns=${COLUMNS}
          rows=${found.map((schedule) => [
            schedule.name,
            html`
              ${schedule.name} ${schedule.is_failing && html`<${Chip} tone="bad" dot>failing</${Chip}>`}
              <${Small}>${schedule.cron} (${schedule.timezone})</${Small}>
              <${Small}>${schedule.body.slice(0, 200)}</${Small}>
            `,
            callerOf(schedule.caller),
            schedule.next
              ? html`<time datetime=${schedule.next}>${new Date(schedule.next).toLocaleString()}</time>`
              : "disabled",
            html`<${Runs} runs=${schedule.runs} />`,
            html`
              <${Action} name="Run now" schedule=${schedule} onClick=${run} />
              ${
                schedule.declared
                  ? html`<${Small}>declared in mail.toml</${Small}>`
                  : html`
                      <${Action}
                        name=${schedule.enabled ? "Disable" : "Enable"}
                        schedule=${schedule}
                        onClick=${toggle} />
                      <${Action} name="Delete" schedule=${schedule} onClick=${remove} />
                    `
              }
            `,
          ])} />
      `}
    </${Page}>
  `;
}

function Action({ name, schedule, onClick }) {
  return html`
    <${RowButton} label=${`${name}: ${schedule.name}`} onClick=${() => void onClick(schedule)}>${name}</${RowButton}>
  `;
}

function Runs({ runs }) {
  if (!runs.length) return "none yet";
  return runs.slice(0, SHOWN).map(
    (run) => html`
      <div key=${run.at}>
        <${Chip} tone=${TONES[run.state]}>${run.state}</${Chip}>
        ${" "}
        <${Ago} time=${run.at} />
        ${run.reason && html`<${Small}>${run.reason}</${Small}>`}
      </div>
    `,
  );
}
