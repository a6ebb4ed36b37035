// What a task waits for besides people and agents: calls that finish later, reminders, and messages for later.

import { AgentName } from "../components/agent.js";
import { WorkButton } from "../components/button.js";
import { Ago, Elapsed } from "../components/duration.js";
import { Notice } from "../components/notice.js";
import { html, useState } from "../html.js";

function Call({ call }) {
  return html`
    <${AgentName} name=${call.agent} />
    ${" "}
    <span class="quiet">
      waits for${" "}
      <code>${call.name}</code>
    </span>
    ${" "}
    <${Elapsed} since=${Date.parse(call.since)} />
    ${" "}
    <span class="quiet">due ${new Date(call.due).toLocaleString()}</span>
    ${
      call.progress &&
      html`
        <span class="wait-text">
          ${call.progress}${" "}
          <span class="quiet">
            (
            <${Ago} time=${call.heard} />
            )
          </span>
        </span>
      `
    }
  `;
}

function Timer({ timer }) {
  return html`
    ${
      timer.agent &&
      html`
        <${AgentName} name=${timer.agent} />
        ${" "}
      `
    }
    <span class="quiet">${timer.kind === "reminder" ? "is reminded" : "Message"} on</span>
    ${" "}
    <span>${new Date(timer.due).toLocaleString()}</span>
    ${" "}
    <span class="wait-text">${timer.text}</span>
  `;
}

/** The calls and timers of a task, in the order of their times, each with a button that cancels it. */
export function Waits({ session }) {
  const [problem, setProblem] = useState(null);
  const { calls = [], timers = [] } = session.record ?? {};
  const waits = session.past
    ? []
    : [
        ...calls.map((call) => ({ ...call, kind: "call", label: `Cancel the call of ${call.name}` })),
        ...timers.map((timer) => ({ ...timer, label: `Cancel the ${timer.kind}` })),
      ].sort((a, b) => Date.parse(a.due) - Date.parse(b.due));
  const cancel = async (wait) => {
    try {
      setProblem(null);
      await session.cancelWait(wait);
      document.getElementById("main").focus({ preventScroll: true }); // the button disappears
    } catch (failure) {
      setProblem(failure);
    }
  };
  if (!waits.length) return null;
  return html`
    <ul class="waits" aria-label="Waits for">
      ${waits.map(
        (wait) => html`
          <li key=${wait.id} class="wait">
            <p class="wait-what">
              ${wait.kind === "call" ? html`<${Call} call=${wait} />` : html`<${Timer} timer=${wait} />`}
            </p>
            <${WorkButton} class="button small" aria-label=${wait.label} onClick=${() => cancel(wait)}>
              Cancel
            </${WorkButton}>
          </li>
        `,
      )}
    </ul>
    ${problem && html`<${Notice} tone="bad">${problem.message}</${Notice}>`}
  `;
}
