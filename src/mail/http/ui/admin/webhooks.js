// The administrator's own webhooks, and those of other callers.

import { Chip } from "../components/chip.js";
import { Ago } from "../components/duration.js";
import { SelectField } from "../components/field.js";
import { Empty } from "../components/notice.js";
import { useData } from "../components/use-data.js";
import { plural } from "../components/words.js";
import { html, useState } from "../html.js";
import { AddForm, Adding, Page, RowButton, Small, Table, useActs } from "./page.js";
import { callerOf } from "./all-tasks.js";
import { allWebhooks, deleteWebhook, disableWebhook, registerWebhook, webhooks } from "./requests.js";

const COLUMNS = [
  ["URL", "wide"],
  ["Events", "breakable"],
  ["Secret", "breakable"],
  ["Created", "nowrap"],
  ["", "actions"],
];
const OTHERS = [["Host", "wide"], ["Caller"], ["State"], ["Secret"], ["Created", "nowrap optional"], ["", "actions"]];

const EVENTS = [
  ["ends", "what ends or pauses a task"],
  ["all", "all"],
];

export function Webhooks({ caller }) {
  const mine = `${caller.role}:${caller.id}`;
  const data = useData(
    async () => {
      const [own, all] = await Promise.all([webhooks(), allWebhooks()]);
      return { own, others: all.filter((each) => callerOf(each.caller) !== mine) };
    },
    { every: 15 },
  );
  const { said, say, ask } = useActs(data);
  const remove = (webhook) => {
    const children = html`<p class="breakable">${webhook.url} receives nothing of tasks that begin from now on.</p>`;
    ask(
      { title: "Delete this webhook?", action: "Delete", children },
      () => deleteWebhook(webhook.id),
      () => "The webhook is deleted. Tasks that began with it keep it.",
    );
  };
  const disable = ({ id, host, caller: owner }) => {
    const children = html`
      <p class="breakable">
        ${host} receives nothing more of the tasks of ${callerOf(owner)}, those that run included. Events that wait are
        not sent.
      </p>
      <p>
        The timelines of these tasks and the server's log say that you have disabled it. Its owner can register it
        again.
      </p>
    `;
    ask(
      { title: "Disable this webhook?", action: "Disable", children },
      () => disableWebhook({ id, caller: callerOf(owner) }),
      ({ tasks }) => `The webhook is disabled, in ${plural(tasks, "task")} as well.`,
    );
  };
  const onRegistered = () => {
    say("The webhook is registered, for tasks that begin from now on.");
    void data.reload();
  };
  return html`
    <${Page}
      title="Webhooks"
      about=${`URLs that receive the events of the tasks that ${mine} begins. Each caller has webhooks of their own.`}
      data=${data}>
      ${({ own: found, others }) => html`
        ${said}
        <${Adding} title="Register a webhook" command="mail webhook register https://hooks.example/mail">
          <${NewWebhook} onRegistered=${onRegistered} />
        </${Adding}>
        <${Table}
          label="Webhooks"
          none=${html`<${Empty} title="No webhooks yet" />`}
          columns=${COLUMNS}
          rows=${found.map((webhook) => [
            webhook.id,
            html`
              ${webhook.url}
              <${Small}>${webhook.id}</${Small}>
            `,
            webhook.events.includes("*") ? "all" : webhook.events.join(", "),
            webhook.secret_ref ? html`<span class="mono">${webhook.secret_ref}</span>` : "not signed",
            html`<${Ago} time=${webhook.created} />`,
            html`
              <${RowButton} label=${`Delete the webhook ${webhook.url}`} onClick=${() => remove(webhook)}>
                Delete
              </${RowButton}>
            `,
          ])} />
        <div class="admin-title">
          <h3>Webhooks of other callers</h3>
          <p class="quiet">Of their URLs you see the host. The counts are of the newest 200 tasks of all callers.</p>
        </div>
        <${Table}
          label="Webhooks of other callers"
          none=${html`<p class="quiet">No other caller has one.</p>`}
          columns=${OTHERS}
          rows=${others.map((webhook) => [
            `${webhook.caller}#${webhook.id}`,
            html`
              ${webhook.host}
              <${Small}>${webhook.id}</${Small}>
            `,
            callerOf(webhook.caller),
            html`<${State} webhook=${webhook} />`,
            webhook.is_signed ? "signed" : "not signed",
            webhook.created ? html`<${Ago} time=${webhook.created} />` : "in tasks only",
            html`
              <${RowButton}
                label=${`Disable the webhook ${webhook.id} of ${callerOf(webhook.caller)}`}
                onClick=${() => disable(webhook)}>
                Disable
              </${RowButton}>
            `,
          ])} />
      `}
    </${Page}>
  `;
}

function State({ webhook: { tasks, waiting, failing, next_try: next } }) {
  if (failing)
    return html`
      <${Chip} tone="bad" dot>failing in ${failing}</${Chip}>
      <${Small}>
        next
        try ${
          next && html`<time datetime=${next}>${new Date(next).toLocaleTimeString([], { timeStyle: "short" })}</time>`
        }
      </${Small}>
    `;
  if (waiting) return html`<${Chip} tone="busy" dot>sending</${Chip}>`;
  return plural(tasks, "task");
}

const FIELDS = [
  ["url", { label: "URL", type: "url", required: true, placeholder: "https://hooks.example/mail" }],
  ["secret_ref", { label: "Secret", placeholder: "${WEBHOOK_SECRET_NAME}" }],
];

function NewWebhook({ onRegistered }) {
  const [events, setEvents] = useState("ends");
  const register = ({ url, secret_ref = null }) =>
    registerWebhook({ url, secret_ref, ...(events === "all" ? { events: ["*"] } : {}) });
  return html`
    <${AddForm} id="webhook" fields=${FIELDS} register=${register} onDone=${onRegistered}>
      <${SelectField} label="Events" id="webhook-events" value=${events} onChoose=${setEvents} options=${EVENTS} />
    </${AddForm}>
  `;
}
