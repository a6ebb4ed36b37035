// Small labels.

import { html } from "../html.js";

const TONES = { running: "busy", paused: "warn", completed: "good", failed: "bad", cancelled: "plain" };

/** A label; `tone`: plain, busy, good, warn, bad or accent. */
export function Chip({ tone = "plain", dot = false, title, children }) {
  return html`
    <span class=${`chip ${tone}`} title=${title}>
      ${dot && html`<span class="dot" aria-hidden="true"></span>`}${children}
    </span>
  `;
}

/** The state of a task. */
export function StatusChip({ status }) {
  return html`<${Chip} tone=${TONES[status]} dot>${status}</${Chip}>`;
}
