// The trace of a task.

import { html } from "../html.js";

export function Trace({ session }) {
  return html`<p class="quiet">${session.events.length} events</p>`;
}
