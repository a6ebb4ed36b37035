// The administrator's own webhooks.

import { Confirm } from "../components/dialog.js";
import { Ago } from "../components/duration.js";
import { Empty } from "../components/notice.js";
import { html, useState } from "../html.js";
import { Adding, Field, Page, Small, Table, perform, useData, useNotice } from "./page.js";
import { deleteWebhook, registerWebhook, webhooks } from "./requests.js";

const COLUMNS = [["URL", "wide"], ["Events", "breakable"], ["Secret", "breakable"], ["Created", "nowrap"], ["", "actions"]];

export function Webhooks({ caller }) {
  const data = useData(webhooks);
  const [notice, say] = useNotice();
  const [doomed, setDoomed] = useState(null);
  const remove = async (webhook) => {
    setDoomed(null);
    await perform(say, () => deleteWebhook(webhook.id), () => "The webhook is deleted. Tasks that began with it keep it.");
    await data.reload();
  };
  return html`<${Page} title="Webhooks" about=${`URLs that receive the events of the tasks that ${caller.role}:${caller.id} begins. Each caller has webhooks of their own.`} data=${data}>${(found) => html`
    ${notice}
    <${Adding} title="Register a webhook"><${NewWebhook} onRegistered=${() => (say("The webhook is registered, for tasks that begin from now on."), void data.reload())} /><//>
    ${found.length
      ? html`<${Table} label="Webhooks" columns=${COLUMNS} rows=${found.map((webhook) => [
          webhook.id,
          html`${webhook.url}<${Small}>${webhook.id}<//>`,
          webhook.events.includes("*") ? "all" : webhook.events.join(", "),
          webhook.secret_ref ? html`<span class="mono">${webhook.secret_ref}</span>` : "not signed",
          html`<${Ago} time=${webhook.created} />`,
          html`<button type="button" class="button small" aria-label=${`Delete the webhook ${webhook.url}`} onClick=${() => setDoomed(webhook)}>Delete</button>`,
        ])} />`
      : html`<${Empty} title="No webhooks yet" />`}
    ${doomed && html`<${Confirm} title="Delete this webhook?" action="Delete" onClose=${() => setDoomed(null)} onConfirm=${() => void remove(doomed)}>
      <p class="breakable">${doomed.url} receives nothing of tasks that begin from now on.</p>
    <//>`}
  `}<//>`;
}

function NewWebhook({ onRegistered }) {
  const [url, setUrl] = useState("");
  const [secret, setSecret] = useState("");
  const [isAll, setAll] = useState(false);
  const [notice, say] = useNotice();
  const register = () =>
    perform(say, () => registerWebhook({ url: url.trim(), secret_ref: secret.trim() || null, ...(isAll ? { events: ["*"] } : {}) }), () => {
      setUrl("");
      setSecret("");
      onRegistered();
      return "";
    });
  return html`<form class="admin-form" onSubmit=${(event) => (event.preventDefault(), void register())}>
    <${Field} label="URL" id="webhook-url"><input id="webhook-url" type="url" required placeholder="https://hooks.example/mail" spellcheck="false" value=${url} onInput=${(event) => setUrl(event.currentTarget.value)} /><//>
    <${Field} label="Secret" id="webhook-secret"><input id="webhook-secret" placeholder=${"${WEBHOOK_SECRET_NAME}"} spellcheck="false" autocomplete="off" value=${secret} onInput=${(event) => setSecret(event.currentTarget.value)} /><//>
    <${Field} label="Events" id="webhook-events"><select id="webhook-events" value=${isAll ? "all" : "ends"} onChange=${(event) => setAll(event.currentTarget.value === "all")}>
      <option value="ends">what ends or pauses a task</option><option value="all">all</option>
    </select><//>
    <button type="submit" class="button primary">Register</button>
    ${notice}
  </form>`;
}
