// An agent's name, with the colour that it has everywhere on the page.

import { html } from "../html.js";

const HUES = 8;

const places = new Map();

/** The agent that a name belongs to: `researcher~3` is a copy of `researcher`. */
export const agentOf = (name) => (name.includes("@") ? name : name.replace(/~\d+$/, ""));

/** Give the agents of the swarm colours that differ, as far as there are so many. */
export function assignHues(names) {
  places.clear();
  names.forEach((name, place) => places.set(name, place));
}

/**
 * Return a number from 1 to 8 for the name of an agent or its copy, always the same; base.css has the colours
 * `--hue-N` and classes `.hue-N`.
 */
export function hueOf(one) {
  const name = agentOf(one);
  if (places.has(name)) return (places.get(name) % HUES) + 1;
  let sum = 0;
  for (const character of name) sum = (sum * 31 + character.codePointAt(0)) >>> 0;
  return (sum % HUES) + 1;
}

/** `isAgent` is false for people and the system, which have no colour. */
export function AgentName({ name, isAgent = true }) {
  return html`
    <span class=${`agent-name ${isAgent ? `hue-${hueOf(name)}` : ""}`}>
      <span class="agent-dot" aria-hidden="true"></span>
      ${name}
    </span>
  `;
}

/** Who writes to whom. */
export const Way = ({ from, isByAgent = true, to }) => html`
  <${AgentName} name=${from} isAgent=${isByAgent} />
  <span class="arrow" role="img" aria-label="to">→</span>
  ${to.map((name) => html`<${AgentName} key=${name} name=${name} />`)}
`;
