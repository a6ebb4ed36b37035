// The registry: the swarms that agents here may write to, and their health.

import { Chip } from "../components/chip.js";
import { Ago, formatSeconds } from "../components/duration.js";
import { Empty } from "../components/notice.js";
import { useData } from "../components/use-data.js";
import { html, useState } from "../html.js";
import { AddForm, Adding, Page, RowButton, Small, Table, useActs } from "./page.js";
import { registerSwarm, removeSwarm, swarms } from "./requests.js";

const COLUMNS = [
  ["Swarm", "wide"],
  ["Health"],
  ["Last answer", "nowrap optional"],
  ["Token", "breakable"],
  ["Options"],
  ["", "actions"],
];

export function Registry() {
  const data = useData(swarms, { every: 15 });
  const { said, say, ask } = useActs(data);
  const remove = (name) => {
    const children = html`
      <p>
        Agents can no longer write to${" "}
        <strong>${name}</strong>
        . Mail that waits for it is returned to its sender.
      </p>
    `;
    ask(
      { title: `Remove ${name}?`, action: "Remove", children },
      () => removeSwarm(name),
      () => `${name} is removed.`,
    );
  };
  const onRegistered = ({ swarm_name: name, notes }) => {
    say(`${name} is registered.`, { more: notes.map((note) => html`<p>${note}</p>`) });
    void data.reload();
  };
  return html`
    <${Page}
      title="Other swarms"
      about="The swarms that agents of this server may write to, as agent@swarm."
      data=${data}>
      ${(found) => html`
        ${said}
        <${Adding} title="Register a swarm" command=${`mail client${"\n"}swarm-register beta https://beta.example`}>
          <${NewSwarm} onRegistered=${onRegistered} />
        </${Adding}>
        <${Table}
          label="Other swarms"
          none=${html`
            <${Empty} title="No other swarms yet"><p>Agents of this server write to each other only.</p></${Empty}>
          `}
          columns=${COLUMNS}
          rows=${found.map((swarm) => [
            swarm.swarm_name,
            html`
              ${swarm.swarm_name}${
                swarm.version &&
                html`
                  ${" "}
                  <span class="quiet">${swarm.version}</span>
                `
              }
              <${Small}>${swarm.base_url}</${Small}>
            `,
            html`<${Health} swarm=${swarm} />`,
            html`
              ${swarm.last_seen ? html`<${Ago} time=${swarm.last_seen} />` : "never"}${
                swarm.is_active &&
                swarm.latency != null &&
                html`<${Small}>in ${formatSeconds(swarm.latency)}</${Small}>`
              }
            `,
            html`
              ${
                swarm.auth === "aws_iam"
                  ? "AWS signature"
                  : html`<span class="mono">${swarm.auth_token_ref ?? "–"}</span>`
              }${swarm.caller_id && html`<${Small}>Its id here: ${swarm.caller_id}</${Small}>`}
            `,
            html`
              <span class="row">
                ${swarm.kind === "a2a" && html`<${Chip} title="An agent that is called by A2A">A2A</${Chip}>`}${
                  swarm.public && html`<${Chip}>public</${Chip}>`
                }${
                  swarm.volatile &&
                  html`<${Chip} title="Removed after a day, and when the server stops">volatile</${Chip}>`
                }
              </span>
            `,
            html`
              <${RowButton} label=${`Remove ${swarm.swarm_name}`} onClick=${() => remove(swarm.swarm_name)}>
                Remove
              </${RowButton}>
            `,
          ])} />
      `}
    </${Page}>
  `;
}

function Health({ swarm }) {
  if (swarm.is_active) return html`<${Chip} tone="good" dot>up</${Chip}>`;
  return swarm.last_seen ? html`<${Chip} tone="bad" dot>down</${Chip}>` : html`<${Chip} dot>not reached yet</${Chip}>`;
}

const FIELDS = [
  ["name", { label: "Name", required: true, placeholder: "beta" }],
  ["base_url", { label: "URL", required: true, type: "url", placeholder: "https://beta.example" }],
  ["auth_token", { label: "Token", placeholder: "${SWARM_AUTH_TOKEN_BETA}", "aria-describedby": "swarm-token-help" }],
  ["caller_id", { label: "Its id here", placeholder: "Its name" }],
];

function NewSwarm({ onRegistered }) {
  const [volatile, setVolatile] = useState(false);
  const onDone = (done) => {
    setVolatile(false);
    onRegistered(done);
  };
  return html`
    <${AddForm}
      id="swarm"
      fields=${FIELDS}
      register=${(typed) => registerSwarm({ ...typed, ...(volatile ? { volatile } : {}) })}
      onDone=${onDone}>
      <label class="row check">
        <input type="checkbox" checked=${volatile} onChange=${(event) => setVolatile(event.currentTarget.checked)} />
        Volatile: remove it after a day
      </label>
      <p class="quiet small-text full" id="swarm-token-help">
        The token is a reference to a variable of this server. Only a volatile swarm may have the token itself.
      </p>
    </${AddForm}>
  `;
}
