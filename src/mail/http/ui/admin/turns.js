// The turns of a task of any caller: who worked for how long, and what it cost; nothing of what was written.

import { AgentName } from "../components/agent.js";
import { Chip } from "../components/chip.js";
import { Dialog } from "../components/dialog.js";
import { formatTook } from "../components/duration.js";
import { Empty } from "../components/notice.js";
import { formatCost } from "../components/usage.js";
import { useData } from "../components/use-data.js";
import { count } from "../components/words.js";
import { html } from "../html.js";
import { Small, Table } from "./page.js";
import { turns } from "./requests.js";

const COLUMNS = [
  ["Agent"],
  ["State"],
  ["Began", "nowrap"],
  ["Duration", "number"],
  ["Actions", "number"],
  ["Tokens", "number"],
  ["Cost", "number"],
];
const TONES = { ok: "good", failed: "bad", discarded: "plain" };

const time = (text) => html`
  <time datetime=${text}>
    ${new Date(text).toLocaleTimeString([], { hour: "2-digit", minute: "2-digit", second: "2-digit" })}
  </time>
`;

/** Return the models that a turn has called. */
const modelsOf = ({ timing }) => [...new Set((timing?.model_calls ?? []).map(({ model }) => model))].join(", ");

/** `caller` is the owner of `task`, a summary. */
export function TurnsDialog({ task, caller, onClose }) {
  const { data, instead } = useData(() => turns({ task_id: task.task_id, caller }), { about: [task.task_id, caller] });
  return html`
    <${Dialog} title=${`Turns of ${task.title || task.task_id}`} isWide onClose=${onClose}>
      <div class="admin-turns">
        <p class="quiet small-text">
          ${caller}, ${task.task_id}. Admins see who works and what it costs, not what is written. The audit keeps each
          look.
        </p>
        ${
          instead ??
          html`
            <${Table}
              label="Turns"
              none=${html`<${Empty} title="No turn is over yet" />`}
              columns=${COLUMNS}
              rows=${data.map((turn) => [
                turn.first,
                html`
                  <${AgentName} name=${turn.agent} />
                  ${modelsOf(turn) && html`<${Small}>${modelsOf(turn)}</${Small}>`}
                `,
                html`<${Chip} tone=${TONES[turn.state]} dot>${turn.state}</${Chip}>`,
                time(turn.timing?.began ?? turn.committed),
                turn.timing ? formatTook(turn.timing.seconds) : "< 1 s",
                turn.failed_actions ? `${turn.actions}, ${turn.failed_actions} failed` : count(turn.actions),
                turn.usage?.calls ? `${count(turn.usage.input_tokens)} → ${count(turn.usage.output_tokens)}` : "–",
                formatCost(turn.usage ?? {}) || "–",
              ])} />
          `
        }
      </div>
    </${Dialog}>
  `;
}
