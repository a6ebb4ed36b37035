// The graph of the swarm while it works on the open task.

import { Inspector } from "../components/inspector.js";
import { html, useMemo, useState } from "../html.js";
import { Activity } from "./activity.js";
import { AgentPanel } from "./agent.js";
import { SwarmGraph } from "./graph.js";
import { CALLER } from "./model.js";

/** What the agents of a task have done, up to the chosen moment. */
export function useActivity(session, swarm) {
  const activity = useMemo(() => new Activity(swarm), [swarm, session, session.at]);
  return activity.read(session.items.all, session.at ?? Infinity);
}

const ownerOf = (record, caller) => {
  const owner = record?.task_owner.replace(/@[^@]*$/, "") ?? "";
  return owner === `${caller?.role}:${caller?.id}` ? "You" : owner.replace(/^\w+:/, "") || "Caller";
};

export function GraphTab({ session, swarm, caller, navigate }) {
  const activity = useActivity(session, swarm);
  const [agent, setAgent] = useState(null);
  const owner = ownerOf(session.record, caller);
  const title = agent === CALLER ? owner : agent;
  return html`
    <div class="with-inspector graph-tab" onKeyDown=${(event) => event.key === "Escape" && setAgent(null)}>
      <${SwarmGraph}
        swarm=${swarm}
        session=${session}
        activity=${activity}
        caller=${owner}
        selected=${agent}
        onAgent=${setAgent} />
      ${
        agent &&
        html`
          <${Inspector} title=${title} onClose=${() => setAgent(null)}>
            <${AgentPanel}
              key=${agent}
              agent=${agent}
              swarm=${swarm}
              session=${session}
              activity=${activity}
              caller=${caller}
              onAgent=${setAgent}
              onEntry=${(entry) => navigate({ tab: "trace", entry })} />
          </${Inspector}>
        `
      }
    </div>
  `;
}
