// What administrators see.

import { html } from "../html.js";

export function Admin({ caller }) {
  return html`<p class="quiet">Signed in as ${caller.id}.</p>`;
}
