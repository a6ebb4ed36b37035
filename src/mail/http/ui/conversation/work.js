// What agents do between a question and its answer: one line that unfolds to their mail, and who works now.

import { AgentName, Way } from "../components/agent.js";
import { Clock, Elapsed, formatSeconds } from "../components/duration.js";
import { Files } from "../components/files.js";
import { Icon } from "../components/icons.js";
import { Markdown } from "../components/markdown.js";
import { plural } from "../components/words.js";
import { html, useMemo, useState } from "../html.js";
import { errorsOf, summary } from "./items.js";

const shorten = (text, length) => (text.length > length ? `${text.slice(0, length).trimEnd()}…` : text);

/** Return arguments as `name: value, name: value`. */
const oneLine = (args) =>
  Object.entries(args)
    .map(([name, value]) => `${name}: ${typeof value === "string" ? value : JSON.stringify(value)}`)
    .join(", ");

/** Steps that are shown; a long task has its trace. */
const MANY = 60;

function Mail({ step: mail }) {
  const [isWhole, setWhole] = useState(false);
  const isLong = mail.text.length > 400;
  return html`
    <li class="step">
      <p class="step-head">
        <${Way} from=${mail.sender} to=${mail.recipients} />
        <${Clock} time=${mail.time} />
      </p>
      ${mail.subject && mail.subject !== mail.text && html`<p class="step-subject">${mail.subject}</p>`}
      <div class="step-text"><${Markdown} text=${isWhole ? mail.text : shorten(mail.text, 400)} /></div>
      ${
        isLong &&
        html`
          <button type="button" class="link-button" onClick=${() => setWhole(!isWhole)}>
            ${isWhole ? "Show less" : "Show all"}
          </button>
        `
      }
      <${Files} files=${mail.files} />
    </li>
  `;
}

function Action({ step: action }) {
  return html`
    <li class=${`step ${action.has_failed ? "bad" : ""}`}>
      <p class="step-head">
        <${AgentName} name=${action.agent} />
        ${" "}used${" "}
        <code>${action.name}</code>
        <${Clock} time=${action.time} />
      </p>
      ${
        Object.keys(action.arguments).length > 0 &&
        html`<p class="step-text">${shorten(oneLine(action.arguments), 400)}</p>`
      }
      ${
        action.result &&
        html`
          <p class="step-result">
            <span class="arrow" role="img" aria-label="result">→</span>
            ${" "}${shorten(action.result, 400)}
          </p>
        `
      }
    </li>
  `;
}

const Fault = ({ step: fault }) => html`
  <li class="step bad">
    <p class="step-text">
      <${Icon} name="alert" />
      ${" "}${shorten(fault.text, 400)}
    </p>
  </li>
`;

/** What each kind of step looks like. */
const STEPS = { mail: Mail, action: Action, fault: Fault };

function Steps({ item, onTrace }) {
  const steps = item.steps.filter((step) => !step.ended_task);
  const hidden = Math.max(0, steps.length - MANY);
  return html`
    <ol class="steps">
      ${steps.slice(hidden).map((step) => html`<${STEPS[step.kind]} key=${step.id} step=${step} />`)}
    </ol>
    ${!steps.length && html`<p class="quiet small-text">No mail between agents, and no actions.</p>`}
    <button type="button" class="link-button" onClick=${() => onTrace(item.seq)}>
      ${hidden ? `Show all ${steps.length} steps in the trace` : "Show in the trace"}
    </button>
  `;
}

/** One folded line of work. */
export function Work({ item, onTrace }) {
  const [isOpen, setOpen] = useState(false);
  const seconds = (Date.parse(item.ended ?? item.last) - Date.parse(item.time)) / 1000;
  const errors = errorsOf(item.steps).length;
  const facts = [
    summary(item),
    item.turns && plural(item.turns, "turn"),
    item.ended && formatSeconds(seconds),
    errors && plural(errors, "error"),
  ];
  const steps = useMemo(
    () => isOpen && html`<div class="work-steps"><${Steps} item=${item} onTrace=${onTrace} /></div>`,
    [isOpen, item, item.version],
  );
  if (!item.turns && !item.steps.length) return null;
  return html`
    <div class="work">
      <button type="button" class="work-line" aria-expanded=${String(isOpen)} onClick=${() => setOpen(!isOpen)}>
        <${Icon} name=${isOpen ? "down" : "right"} />
        <span>${facts.filter(Boolean).join(" · ")}</span>
      </button>
      ${steps}
    </div>
  `;
}

/** Characters of what a model writes that are shown while it works. */
const TAIL = 140;

function Job({ agent, job, since, said }) {
  const what = { model: "calls ", wait: "waits for ", action: "runs " }[job?.kind] ?? "";
  const words = job?.kind === "model" ? said : job?.progress;
  return html`
    <li class="job">
      <${AgentName} name=${agent} />
      <span class="job-what">
        ${
          job
            ? html`
                ${what}
                <code>${job.name}</code>
              `
            : "works"
        }
      </span>
      <${Elapsed} since=${job?.since ?? since} />
      ${words && html`<span class="job-said">${words.length > TAIL ? `…${words.slice(-TAIL)}` : words}</span>`}
      ${job?.retry && html`<span class="job-retry">attempt ${job.retry.attempt}: ${job.retry.reason}</span>`}
    </li>
  `;
}

/** Who works on what, and for how long. */
export function Working({ session }) {
  const { live, record } = session;
  if (record?.status !== "running" || session.past) return null;
  const jobs = [...live.agents].flatMap(([agent, { since, work, text }]) =>
    work.size
      ? [...work].map(
          ([key, job]) => html`
            <${Job}
              key=${`${agent} ${key}`}
              agent=${agent}
              job=${job}
              said=${text.answer || (text.to && text.text) ? "" : text.text || text.reasoning} />
          `,
        )
      : [html`<${Job} key=${agent} agent=${agent} since=${since} />`],
  );
  const awaited = live.isIdle
    ? [
        ...(record.waiting_for ?? []).map(
          ({ swarm, agent, problem }) => `Waiting for ${agent ?? swarm}${problem ? `: ${problem}` : ""}`,
        ),
        ...(record.working ?? []).flatMap(({ agent, on }) =>
          on
            .filter(({ until }) => until)
            .map(({ name, until }) => `${agent} waits for ${name} until ${new Date(until).toLocaleTimeString()}`),
        ),
      ]
    : [];
  if (!jobs.length && !awaited.length && (record.calls || record.timers)) return null; // it is asleep
  return html`
    <div class="working">
      <span class="spinner" aria-hidden="true"></span>
      <ul class="jobs" aria-label="Working now">
        ${
          jobs.length
            ? jobs
            : (awaited.length ? awaited : ["Waiting for an agent"]).map(
                (text) => html`<li key=${text} class="job quiet">${text}</li>`,
              )
        }
      </ul>
    </div>
  `;
}
