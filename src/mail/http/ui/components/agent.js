// An agent's name, with the colour that it has everywhere on the page.

import { html } from "../html.js";

const HUES = 8;

/** Return a number from 1 to 8 for an agent's name, always the same; base.css has the colours `--hue-N` and classes `.hue-N`. */
export function hueOf(name) {
  let sum = 0;
  for (const character of name) sum = (sum * 31 + character.codePointAt(0)) >>> 0;
  return (sum % HUES) + 1;
}

export function AgentName({ name }) {
  return html`<span class=${`agent-name hue-${hueOf(name)}`}><span class="agent-dot" aria-hidden="true"></span>${name}</span>`;
}
