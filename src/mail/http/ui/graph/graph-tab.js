// The graph of the swarm while it works on the open task.

import { html } from "../html.js";
import { SwarmGraph } from "./graph.js";

export function GraphTab({ session, swarm }) {
  return html`<${SwarmGraph} swarm=${swarm} session=${session} />`;
}
