// The swarm: its graph, its agents, and the other swarms.

import { html } from "../html.js";
import { SwarmGraph } from "./graph.js";

export function SwarmView({ swarm }) {
  return html`<${SwarmGraph} swarm=${swarm} />`;
}
