// The graph of a swarm.

import { html } from "../html.js";

export function SwarmGraph({ swarm }) {
  return html`<ul>${swarm.agents.map(({ name }) => html`<li key=${name}>${name}</li>`)}</ul>`;
}
