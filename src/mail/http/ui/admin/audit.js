// The audit: who did what with rights.

import { Chip } from "../components/chip.js";
import { Field } from "../components/field.js";
import { Empty } from "../components/notice.js";
import { useData } from "../components/use-data.js";
import { html, useState } from "../html.js";
import { callerOf } from "./all-tasks.js";
import { Command, More, Page, Small, Table } from "./page.js";
import { audit } from "./requests.js";

const PAGE = 100;
const MOST = 1000;
const ABOUT = "Acts with rights of all callers, the newest first: what changes the server, or what others have.";
const EXPORT = "mail audit --lines > audit.jsonl";
const COLUMNS = [
  ["Act", "wide"],
  ["By"],
  ["Whose", "breakable"],
  ["When", "nowrap"],
  ["Outcome"],
  ["From", "optional"],
];
const TONES = { refused: "warn", failed: "bad", started: "accent" };

const timeOf = (time) => new Date(time).toLocaleString([], { dateStyle: "medium", timeStyle: "medium" });

export function Audit() {
  const [asked, setAsked] = useState({ caller: "", act: "" });
  const [limit, setLimit] = useState(PAGE);
  const data = useData(() => audit({ ...asked, limit }), { about: [asked, limit] });
  const filter = (name) => (event) => {
    const value = event.currentTarget.value.trim();
    setAsked((before) => ({ ...before, [name]: value })); // of the other field, the latest one
  };
  return html`
    <${Page} title="Audit" about=${ABOUT} data=${data}>
      ${({ entries, hasMore }) => html`
        <div class="row admin-filters">
          <${Field} label="By" id="audit-by">
            <input id="audit-by" placeholder="role:id" value=${asked.caller} onChange=${filter("caller")} />
          </${Field}>
          <${Field} label="Act" id="audit-act">
            <input id="audit-act" placeholder="create token" value=${asked.act} onChange=${filter("act")} />
          </${Field}>
        </div>
        <${Table}
          label="Audit"
          none=${html`<${Empty} title="No entries"><p>Nothing like this has been done.</p></${Empty}>`}
          columns=${COLUMNS}
          rows=${entries.map((entry) => [
            entry.id,
            html`
              ${entry.act}
              <${Small}>${entry.on}${entry.reason && ` (“${entry.reason}”)`}</${Small}>
            `,
            callerOf(entry.by),
            entry.owner ? callerOf(entry.owner) : "",
            html`<time datetime=${entry.time}>${timeOf(entry.time)}</time>`,
            html`<${Chip} tone=${TONES[entry.outcome] ?? "good"}>${entry.outcome}</${Chip}>`,
            entry.address,
          ])} />
        <${More} hasMore=${hasMore && limit < MOST} onClick=${() => setLimit(Math.min(MOST, limit + PAGE))} />
        <${Command} text=${EXPORT} />
      `}
    </${Page}>
  `;
}
