// An agent: what it is, and what it did in a task.

import { html } from "../html.js";

export function AgentPanel({ agent }) {
  return html`<p>${agent}</p>`;
}
