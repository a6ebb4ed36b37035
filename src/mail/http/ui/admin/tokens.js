// API tokens: list, create, revoke.

import { CopyButton } from "../components/button.js";
import { Chip } from "../components/chip.js";
import { Confirm, Dialog } from "../components/dialog.js";
import { Ago } from "../components/duration.js";
import { html, useState } from "../html.js";
import { Adding, Field, Page, Small, Table, perform, useData, useNotice } from "./page.js";
import { createToken, revokeToken, tokens } from "./requests.js";

const COLUMNS = [["Caller", "wide"], ["Role"], ["Kind"], ["Created", "nowrap"], ["Expires"], ["", "actions"]];
const DAY = 86_400;
const LIVES = [
  ["never", null],
  ["in 1 day", DAY],
  ["in 30 days", 30 * DAY],
  ["in 90 days", 90 * DAY],
  ["in 1 year", 365 * DAY],
];

export function Tokens() {
  const data = useData(tokens);
  const [notice, say] = useNotice();
  const [created, setCreated] = useState(null);
  const [doomed, setDoomed] = useState(null);
  const revoke = async (token) => {
    setDoomed(null);
    await perform(say, () => revokeToken(token.number), () => `The token of ${token.role}:${token.id} is revoked. Servers refuse it within a minute.`);
    await data.reload();
  };
  return html`<${Page} title="Tokens" about="API keys that this server has issued, and the sessions of browsers that signed in with a link. The server stores only their digests." data=${data}>${(found) => html`
    ${notice}
    <${Adding} title="Create a token"><${NewToken} onCreated=${(token) => (setCreated(token), void data.reload())} /><//>
    <${Table} label="Tokens" columns=${COLUMNS} rows=${found.map((token) => [
      token.number,
      html`${token.id}${token.current && html` <${Chip} tone="accent">you<//>`}`,
      token.role,
      html`${token.session ? "browser session" : "API key"}<${Small}>${token.number}<//>`,
      html`<${Ago} time=${token.created} />`,
      token.expires ? html`<time datetime=${token.expires}>${new Date(token.expires).toLocaleString([], { dateStyle: "medium", timeStyle: "short" })}</time>` : "never",
      html`<button type="button" class="button small" aria-label=${`Revoke the token of ${token.role}:${token.id}, number ${token.number}`} onClick=${() => setDoomed(token)}>Revoke</button>`,
    ])} />
    ${doomed && html`<${Confirm} title="Revoke this token?" action="Revoke" onClose=${() => setDoomed(null)} onConfirm=${() => void revoke(doomed)}>
      <p>Servers refuse it within a minute. The tasks of <strong>${doomed.role}:${doomed.id}</strong> stay.</p>
      ${!doomed.session && html`<p>Sessions of sign-in links that were made with it end as well.</p>`}
      ${doomed.current && html`<p><strong>This page uses it: sign in again afterwards.</strong></p>`}
    <//>`}
    ${created && html`<${Dialog} title="The new token" onClose=${() => setCreated(null)}>
      <div class="dialog-body">
        <p>Copy it now. It can't be shown again.</p>
        <div class="code secret"><pre>${created.token}</pre><${CopyButton} text=${created.token} label="Copy the token" /></div>
        <p class="quiet">It is for ${created.role}:${created.id} and ${created.expires ? `expires on ${new Date(created.expires).toLocaleDateString([], { dateStyle: "medium" })}` : "never expires"}.</p>
      </div>
      <div class="dialog-actions"><button type="button" class="button primary" onClick=${() => setCreated(null)}>Done</button></div>
    <//>`}
  `}<//>`;
}

function NewToken({ onCreated }) {
  const [role, setRole] = useState("user");
  const [id, setId] = useState("");
  const [life, setLife] = useState(0);
  const [notice, say] = useNotice();
  const create = () =>
    perform(say, () => createToken(role, id.trim(), LIVES[life][1]), (token) => {
      setId("");
      onCreated(token);
      return "";
    });
  return html`<form class="admin-form" onSubmit=${(event) => (event.preventDefault(), void create())}>
    <${Field} label="Role" id="token-role"><select id="token-role" value=${role} onChange=${(event) => setRole(event.currentTarget.value)}>
      <option value="user">user</option><option value="admin">admin</option><option value="agent">agent (another swarm)</option>
    </select><//>
    <${Field} label="Caller's id" id="token-id"><input id="token-id" required spellcheck="false" autocomplete="off" placeholder="alice" value=${id} onInput=${(event) => setId(event.currentTarget.value)} /><//>
    <${Field} label="Expires" id="token-life"><select id="token-life" value=${life} onChange=${(event) => setLife(Number(event.currentTarget.value))}>
      ${LIVES.map(([name], at) => html`<option value=${at}>${name}</option>`)}
    </select><//>
    <button type="submit" class="button primary">Create</button>
    ${notice}
  </form>`;
}
