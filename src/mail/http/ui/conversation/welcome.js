// What is shown before the first message: who is in the swarm, and what one might ask.

import { AgentName } from "../components/agent.js";
import { html } from "../html.js";

/** What to write to use the actions of the swarm that ships with MAIL. */
const SAMPLES = [
  [["get_weather_forecast", "calculate_expression"], "weather in Tokyo and 12*(3+4)"],
  [["get_weather_forecast"], "What will the weather be like in Oslo tomorrow?"],
  [["calculate_expression"], "What is 17*23?"],
  [["calculate_expression", "ask_human"], "ask a human: may I?"],
];

/** Return up to four messages that show what a swarm can do. */
export function examplePrompts(swarm) {
  const actions = new Set(swarm.actions.map(({ name }) => name));
  const samples = SAMPLES.filter(([names]) => names.every((name) => actions.has(name))).map(([, text]) => text);
  return [...samples, "What can you do for me?", "Who works in this swarm, and on what?"].slice(0, 4);
}

export function Welcome({ swarm, onPick }) {
  return html`
    <div class="welcome">
      <h2>What should ${swarm.name} work on?</h2>
      ${swarm.description && html`<p class="quiet">${swarm.description}</p>`}
      <p class="welcome-agents">${swarm.agents.slice(0, 12).map(({ name }) => html`<${AgentName} key=${name} name=${name} />`)}${swarm.agents.length > 12 && html`<span class="quiet">and ${swarm.agents.length - 12} more</span>`}</p>
      <ul class="prompts" aria-label="Examples">
        ${examplePrompts(swarm).map((text) => html`<li key=${text}><button type="button" class="prompt" onClick=${() => onPick(text)}>${text}</button></li>`)}
      </ul>
    </div>
  `;
}
