// What needs the caller: calls to decide on, in its own tasks and in others' that it may review; questions, failures
// and dead letters of its tasks; and, below, the tasks that wait for others.

import { formatRoute } from "../app/router.js";
import { useStore } from "../app/store.js";
import { WorkButton } from "../components/button.js";
import { Chip } from "../components/chip.js";
import { Ago } from "../components/duration.js";
import { Empty, Guard, Loading, Notice } from "../components/notice.js";
import { useWork } from "../components/use-work.js";
import { visible } from "../components/visible.js";
import { Decision, Questions } from "../conversation/question.js";
import { html, useState } from "../html.js";
import { askPermission, mayAskPermission } from "./waiting.js";

/** What stands above each entry: what the task needs, and its tone. */
const NEEDS = {
  question: ["asks you", "warn"],
  dead_letters: ["has dead letters", "bad"],
  failure: ["has failed", "bad"],
  others: ["waits for others", "plain"],
};

const linkTo = (task, tab) => `#${formatRoute({ view: "tasks", task, tab })}`;

/** A call, below the task that it is of: reviewers of others' tasks see who asks alone. */
function Call({ call, waiting, swarm }) {
  return html`
    <div>
      <p class="need-head">
        ${call.task_id && html`<a href=${linkTo(call.task_id)}>${visible(call.title || call.task_id)}</a>`}
        <span class="quiet small-text">
          ${call.task_id ? "" : `Asked for by ${call.requested_by}, `}
          <${Ago} time=${call.asked} />
        </span>
      </p>
      <${Decision}
        item=${{ ...call, call_id: call.id }}
        call=${call}
        swarm=${swarm}
        session=${{ decide: (_, decision, facts) => waiting.decide(call, decision, facts) }} />
    </div>
  `;
}

/** A call of a paused task with what it asks, as the conversation has it: of mail to a person only its text. */
const questionOf = ({ asks, question_argument: argument, ...call }) => ({
  ...call,
  asked: argument && { text: call.arguments[argument], ...(asks ? {} : { argument }) },
});

/** What can be done about a task, here. */
function Actions({ entry, waiting }) {
  const { need, task } = entry;
  const { perform, said } = useWork({ repeats: true });
  if (need === "others" || need === "question") return null;
  return html`
    ${said}
    <div class="row">
      ${
        need === "dead_letters" &&
        html`
          <${WorkButton} class="button primary" onClick=${() => perform(() => waiting.redrive(task))}>
            Process again
          </${WorkButton}>
        `
      }
      <button type="button" class="button" onClick=${() => waiting.dismiss(entry)}>Dismiss</button>
    </div>
  `;
}

function TaskEntry({ entry, waiting }) {
  const { need, reason, task } = entry;
  const [said, tone] = NEEDS[need];
  const questions = task.pending_tool_calls
    .filter(({ needs_approval, reviewers }) => !needs_approval && !reviewers)
    .map(questionOf);
  return html`
    <article class="need">
      <p class="need-head">
        <a href=${linkTo(task.task_id)}>${visible(task.title || task.task_id)}</a>
        <${Chip} tone=${tone}>${said}</${Chip}>
        <span class="quiet small-text"><${Ago} time=${task.updated} /></span>
      </p>
      ${
        reason && html`<p class="need-reason">${visible(reason.length > 300 ? `${reason.slice(0, 300)}…` : reason)}</p>`
      }
      ${
        need === "question" &&
        html`<${Questions} items=${questions} session=${{ answer: (results) => waiting.answer(task, results) }} />`
      }
      <${Actions} entry=${entry} waiting=${waiting} />
    </article>
  `;
}

/** A button that lets the browser say when something new needs the caller, as long as it has not been asked. */
function Notify() {
  const [mayAsk, setMayAsk] = useState(mayAskPermission());
  if (!mayAsk) return null;
  const ask = async () => {
    await askPermission();
    setMayAsk(mayAskPermission());
  };
  return html`<button type="button" class="button small" onClick=${ask}>Notify me</button>`;
}

export function Needs({ waiting, swarm }) {
  useStore(waiting);
  const { calls, needy, others, hasMore, isLoading, problem } = waiting;
  const isNothing = !calls.length && !needy.length;
  return html`
    <section class="approvals" aria-labelledby="needs-title">
      <div class="needs-head">
        <h2 id="needs-title">Needs you</h2>
        <${Notify} />
      </div>
      ${problem && html`<${Notice} tone="bad">${problem.message}</${Notice}>`}
      ${isLoading && html`<${Loading} />`}
      ${
        !isLoading &&
        isNothing &&
        !problem &&
        html`
          <${Empty} title="Nothing waits for you">
            Calls that need an approval, questions, failures and dead letters appear here.
          </${Empty}>
        `
      }
      ${calls.map(
        (call) => html`<${Guard} key=${call.id}><${Call} call=${call} waiting=${waiting} swarm=${swarm} /></${Guard}>`,
      )}
      ${needy.map(
        (entry) => html`
          <${Guard} key=${entry.task.task_id}><${TaskEntry} entry=${entry} waiting=${waiting} /></${Guard}>
        `,
      )}
      ${hasMore && html`<p class="quiet">More wait behind these.</p>`}
      ${
        others.length > 0 &&
        html`
          <h3>Waiting for others</h3>
          ${others.map(
            (entry) => html`
              <${Guard} key=${entry.task.task_id}><${TaskEntry} entry=${entry} waiting=${waiting} /></${Guard}>
            `,
          )}
        `
      }
    </section>
  `;
}
