// The swarm: its graph, its agents, and the other swarms.

import * as api from "../api/api.js";
import { AgentName } from "../components/agent.js";
import { Chip } from "../components/chip.js";
import { Ago, formatSeconds } from "../components/duration.js";
import { SearchField } from "../components/field.js";
import { Inspector } from "../components/inspector.js";
import { Loading, Notice } from "../components/notice.js";
import { useData } from "../components/use-data.js";
import { plural } from "../components/words.js";
import { html, useState } from "../html.js";
import { AgentPanel } from "./agent.js";
import { SwarmGraph } from "./graph.js";
import { noteOf, toolsOf } from "./model.js";

/** Agents from which on the list has a search. */
const MANY = 12;

/** Seconds after which the other swarms' health is read again. */
const REFRESH = 30;

const summaryOf = (agent, swarm) =>
  [noteOf({ kind: "agent", agent }, swarm.entrypoint), toolsOf(agent).length && plural(toolsOf(agent).length, "tool")]
    .filter(Boolean)
    .join(" · ");

function AgentList({ swarm, selected, onAgent }) {
  const [search, setSearch] = useState("");
  const shown = swarm.agents.filter((agent) =>
    `${agent.name} ${agent.model ?? ""} ${toolsOf(agent).join(" ")}`.toLowerCase().includes(search.toLowerCase()),
  );
  return html`
    <section class="swarm-section">
      <h2>
        Agents${" "}
        <span class="quiet">${swarm.agents.length}</span>
      </h2>
      ${
        swarm.agents.length > MANY &&
        html`
          <${SearchField} label="Search agents" placeholder="Name, model or tool" value=${search} onType=${setSearch} />
        `
      }
      <ul class="agent-list">
        ${shown.map(
          (agent) => html`
            <li key=${agent.name}>
              <button
                type="button"
                class="agent-item"
                aria-pressed=${String(agent.name === selected)}
                onClick=${() => onAgent(agent.name)}>
                <${AgentName} name=${agent.name} />
                <span class="quiet small-text">${summaryOf(agent, swarm)}</span>
              </button>
            </li>
          `,
        )}
      </ul>
      ${!shown.length && html`<p class="quiet">No agent matches.</p>`}
    </section>
  `;
}

function Others({ swarm }) {
  const { data, problem } = useData(api.otherSwarms, { every: REFRESH });
  const swarms = data?.filter(({ swarm_name: name }) => name !== swarm.name);
  return html`
    <section class="swarm-section">
      <h2>Other swarms</h2>
      ${problem && html`<${Notice} tone="bad">${problem.message}</${Notice}>`}
      ${!swarms && !problem && html`<${Loading} />`}
      ${swarms?.length === 0 && html`<p class="quiet">This server knows no other public swarm.</p>`}
      ${
        swarms?.length > 0 &&
        html`
          <ul class="other-swarms">
            ${swarms.map(
              (other) => html`
                <li key=${other.swarm_name}>
                  <p class="row">
                    <strong>${other.swarm_name}</strong>
                    <${Chip} tone=${other.is_active ? "good" : "bad"} dot>${other.is_active ? "up" : "down"}</${Chip}>
                    ${
                      other.is_active && other.latency
                        ? html`<span class="quiet small-text">${formatSeconds(other.latency)}</span>`
                        : null
                    }
                  </p>
                  ${other.swarm_description && html`<p class="small-text">${other.swarm_description}</p>`}
                  <p class="quiet small-text">
                    ${other.base_url}${
                      other.last_seen
                        ? html`
                            ${" "}· seen${" "}
                            <${Ago} time=${other.last_seen} />
                          `
                        : " · never seen"
                    }
                  </p>
                </li>
              `,
            )}
          </ul>
        `
      }
    </section>
  `;
}

export function SwarmView({ swarm, caller, agent, navigate }) {
  const onAgent = (name) => navigate({ view: "swarm", agent: name });
  const isKnown = agent && (agent.includes("@") || swarm.agents.some(({ name }) => name === agent));
  return html`
    <div class="with-inspector swarm-view" onKeyDown=${(event) => event.key === "Escape" && onAgent(null)}>
      <div class="swarm-columns">
        <h1 class="hidden-label">Swarm ${swarm.name}</h1>
        <div class="swarm-side">
          <section class="swarm-section">
            <h2 class="swarm-title">
              ${swarm.name}${" "}
              <span class="quiet small-text">version ${swarm.version}</span>
            </h2>
            ${swarm.description && html`<p>${swarm.description}</p>`}
          </section>
          <${AgentList} swarm=${swarm} selected=${agent} onAgent=${onAgent} />
          <${Others} swarm=${swarm} />
        </div>
        <${SwarmGraph} swarm=${swarm} selected=${agent} onAgent=${onAgent} />
      </div>
      ${
        isKnown &&
        html`
          <${Inspector} title=${agent} onClose=${() => onAgent(null)}>
            <${AgentPanel} key=${agent} agent=${agent} swarm=${swarm} caller=${caller} onAgent=${onAgent} />
          </${Inspector}>
        `
      }
    </div>
  `;
}
