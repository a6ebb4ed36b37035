// The registry: the swarms that agents here may write to, and their health.

import { Chip } from "../components/chip.js";
import { Confirm } from "../components/dialog.js";
import { Ago, formatSeconds } from "../components/duration.js";
import { Empty } from "../components/notice.js";
import { html, useState } from "../html.js";
import { Adding, Field, Page, Small, Table, perform, useData, useNotice } from "./page.js";
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
  const [notice, say] = useNotice();
  const [doomed, setDoomed] = useState(null);
  const remove = async (name) => {
    setDoomed(null);
    await perform(
      say,
      () => removeSwarm(name),
      () => `${name} is removed.`,
    );
    await data.reload();
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
        ${notice}
        <${Adding} title="Register a swarm" command=${`mail client${"\n"}swarm-register beta https://beta.example`}>
          <${NewSwarm} onRegistered=${onRegistered} />
        </${Adding}>
        ${
          found.length
            ? html`
                <${Table}
                  label="Other swarms"
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
                      <button
                        type="button"
                        class="button small"
                        aria-label=${`Remove ${swarm.swarm_name}`}
                        onClick=${() => setDoomed(swarm.swarm_name)}>
                        Remove
                      </button>
                    `,
                  ])} />
              `
            : html`
                <${Empty} title="No other swarms yet"><p>Agents of this server write to each other only.</p></${Empty}>
              `
        }
        ${
          doomed &&
          html`
            <${Confirm}
              title=${`Remove ${doomed}?`}
              action="Remove"
              onClose=${() => setDoomed(null)}
              onConfirm=${() => void remove(doomed)}>
              <p>
                Agents can no longer write to${" "}
                <strong>${doomed}</strong>
                . Mail that waits for it is returned to its sender.
              </p>
            </${Confirm}>
          `
        }
      `}
    </${Page}>
  `;
}

function Health({ swarm }) {
  if (swarm.is_active) return html`<${Chip} tone="good" dot>up</${Chip}>`;
  return swarm.last_seen ? html`<${Chip} tone="bad" dot>down</${Chip}>` : html`<${Chip} dot>not reached yet</${Chip}>`;
}

const NOTHING = { name: "", base_url: "", auth_token: "", caller_id: "", volatile: false };

function NewSwarm({ onRegistered }) {
  const [given, setGiven] = useState(NOTHING);
  const [notice, say] = useNotice();
  const text = (name) => ({
    id: `swarm-${name}`,
    spellcheck: false,
    autocomplete: "off",
    value: given[name],
    onInput: (event) => setGiven({ ...given, [name]: event.currentTarget.value }),
  });
  const register = () => {
    const { volatile, ...texts } = given;
    const filled = Object.fromEntries(
      Object.entries(texts).flatMap(([name, value]) => (value.trim() ? [[name, value.trim()]] : [])),
    );
    return perform(
      say,
      () => registerSwarm({ ...filled, ...(volatile ? { volatile } : {}) }),
      (done) => {
        setGiven(NOTHING);
        onRegistered(done);
        return "";
      },
    );
  };
  return html`
    <form class="admin-form" onSubmit=${(event) => (event.preventDefault(), void register())}>
      <${Field} label="Name" id="swarm-name"><input required placeholder="beta" ...${text("name")} /></${Field}>
      <${Field} label="URL" id="swarm-base_url">
        <input required type="url" placeholder="https://beta.example" ...${text("base_url")} />
      </${Field}>
      <${Field} label="Token" id="swarm-auth_token">
        <input placeholder=${"${SWARM_AUTH_TOKEN_BETA}"} aria-describedby="swarm-token-help" ...${text("auth_token")} />
      </${Field}>
      <${Field} label="Its id here" id="swarm-caller_id">
        <input placeholder="Its name" ...${text("caller_id")} />
      </${Field}>
      <label class="row check">
        <input
          type="checkbox"
          checked=${given.volatile}
          onChange=${(event) => setGiven({ ...given, volatile: event.currentTarget.checked })} />
        Volatile: remove it after a day
      </label>
      <button type="submit" class="button primary">Register</button>
      <p class="quiet small-text full" id="swarm-token-help">
        The token is a reference to a variable of this server. Only a volatile swarm may have the token itself.
      </p>
      ${notice}
    </form>
  `;
}
