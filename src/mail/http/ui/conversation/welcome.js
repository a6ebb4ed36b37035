// What is shown before the first message: who is in the swarm, and what one might ask.

import { formatRoute } from "../app/router.js";
import { AgentName } from "../components/agent.js";
import { html } from "../html.js";

/** Requests that show what the swarm that ships with MAIL can do, and the actions that they need. */
const SAMPLES = [
  {
    needs: ["get_weather_forecast", "calculate_expression"],
    about: "Two agents work on it",
    text: "The weather in Tokyo, and 12*(3+4)?",
  },
  {
    needs: ["get_weather_forecast"],
    about: "An agent uses its tool",
    text: "What will the weather be like in Oslo tomorrow?",
  },
  {
    needs: ["calculate_expression", "ask_human"],
    about: "An agent asks you back",
    text: "Ask a human: Which hotel shall I book?",
  },
  { needs: ["calculate_expression"], about: "A quick calculation", text: "What is 17*23?" },
];

const GENERAL = [
  { about: "What it is for", text: "What can you do for me?" },
  { about: "Who is in it", text: "Who works in this swarm, and on what?" },
];

/** Agents that are named. */
const MANY = 12;

/** Return up to four messages that show what a swarm can do, each as `{about, text}`. */
export function examplePrompts(swarm) {
  const actions = new Set(swarm.actions.map(({ name }) => name));
  return [...SAMPLES.filter(({ needs }) => needs.every((name) => actions.has(name))), ...GENERAL].slice(0, 4);
}

export function Welcome({ swarm, onPick }) {
  return html`
    <div class="welcome">
      <h2>What should ${swarm.name} work on?</h2>
      ${swarm.description && html`<p class="quiet">${swarm.description}</p>`}
      <ul class="welcome-agents" aria-label="Agents">
        ${swarm.agents.slice(0, MANY).map(
          ({ name, description }) => html`
            <li key=${name}>
              <a title=${description} href=${`#${formatRoute({ view: "swarm", agent: name })}`}>
                <${AgentName} name=${name} />
              </a>
            </li>
          `,
        )}
        ${
          swarm.agents.length > MANY &&
          html`
            <li>
              <a class="quiet" href=${`#${formatRoute({ view: "swarm" })}`}>and ${swarm.agents.length - MANY} more</a>
            </li>
          `
        }
      </ul>
      <ul class="prompts" aria-label="Examples">
        ${examplePrompts(swarm).map(
          ({ about, text }) => html`
            <li key=${text}>
              <button type="button" class="prompt" onClick=${() => onPick(text)}>
                <span class="prompt-about">${about}</span>
                ${text}
              </button>
            </li>
          `,
        )}
      </ul>
    </div>
  `;
}
