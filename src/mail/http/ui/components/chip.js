// Small labels.

import { html } from "../html.js";
import { Icon } from "./icons.js";

const TONES = { running: "busy", paused: "warn", completed: "good", failed: "bad", cancelled: "plain" };

/** A label; `tone`: plain, busy, good, warn, bad or accent. */
export function Chip({ tone = "plain", dot = false, title, children }) {
  return html`
    <span class=${`chip ${tone}`} title=${title}>
      ${dot && html`<span class="dot" aria-hidden="true"></span>`}${children}
    </span>
  `;
}

const ICONS = { running: "play", paused: "pause", completed: "check", failed: "alert", cancelled: "stop" };

/** The state of a task, which its icon tells, too; of a past moment (`isPast`), it has no colour. */
export function StatusChip({ status, isPast = false }) {
  return html`
    <${Chip} tone=${isPast ? "plain" : TONES[status]}>
      <${Icon} name=${ICONS[status]} size=${12} />
      ${status}
    </${Chip}>
  `;
}
