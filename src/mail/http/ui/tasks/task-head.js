// The open task's title and state, its details, and the button that cancels it.

import * as api from "../api/api.js";
import { CopyButton, IconButton, WorkButton } from "../components/button.js";
import { Chip, StatusChip } from "../components/chip.js";
import { ConfirmButton, Dialog } from "../components/dialog.js";
import { Facts } from "../components/facts.js";
import { saveAs } from "../components/files.js";
import { Icon } from "../components/icons.js";
import { useWork } from "../components/use-work.js";
import { UsageTable, formatCost, formatTokens } from "../components/usage.js";
import { html, useState } from "../html.js";
import { ShareDialog } from "./share.js";

const CANCELLABLE = new Set(["running", "paused"]);

function Details({ record }) {
  const { usage } = record;
  const id = html`
    <span class="mono">${record.task_id}</span>
    <${CopyButton} text=${record.task_id} label="Copy the id" />
  `;
  const limits = Object.entries(record.budget ?? {}).filter(([, limit]) => limit !== null);
  const rows = [
    ["Task", id],
    ["Started", new Date(record.start_time).toLocaleString()],
    ["Owner", record.task_owner],
    ["Entrypoint", record.entrypoint],
    ["Steps", `${record.steps} of ${record.max_steps}${record.generation > 1 ? " since it was resumed" : ""}`],
    ["Generation", record.generation > 1 && record.generation],
    ["Other swarms", record.remote_swarms.join(", ")],
    ["Budget", limits.map(([name, limit]) => `${limit} ${name}`).join(", ")],
    ["Unread mail", record.task_message_queue?.length || ""],
    ["Dead letters", record.dead_letters.length || ""],
  ];
  return html`
    <${Facts} rows=${rows} />
    ${
      usage.total.calls > 0 &&
      html`
        <h3>Usage by agent</h3>
        <${UsageTable} first="Agent" rows=${usage.agents} total=${usage.total} />
        <h3>Usage by model</h3>
        <${UsageTable} first="Model" rows=${usage.models} />
      `
    }
  `;
}

/** The button that saves the conversation as a text. */
function SaveMarkdown({ taskId }) {
  const { perform, said } = useWork({ repeats: true });
  const save = async () => {
    const query = { task_id: taskId, form: "markdown" };
    saveAs(await (await api.request("GET", "task/export", { query })).blob(), `${taskId}.md`);
  };
  return html`
    ${said}
    <${WorkButton} class="button small" onClick=${() => perform(save)}>Save as Markdown</${WorkButton}>
  `;
}

/** The button that deletes a task that has stopped, after a question. */
function Delete({ session, onDeleted }) {
  const { perform, said } = useWork();
  const remove = async () => {
    await session.delete();
    onDeleted();
  };
  return html`
    ${said}
    <${ConfirmButton}
      label="Delete the task"
      class="button small danger"
      title="Delete this task?"
      action="Delete"
      onConfirm=${() => perform(remove)}>
      <p>Its messages, events, histories and answers are deleted. This can't be undone; its forks keep their copies.</p>
    </${ConfirmButton}>
  `;
}

/** Leads to the list where it is a view of its own. */
export const BackButton = ({ navigate }) => html`
  <${IconButton}
    icon="back"
    label="Back to the list"
    class="button icon-button only-narrow"
    onClick=${() => navigate({ view: "tasks" })} />
`;

export function TaskHead({ session, list, navigate }) {
  const [hasDetails, setDetails] = useState(false);
  const [isSharing, setSharing] = useState(false);
  const record = session.shown;
  const usage = record?.usage.total;
  const cancel = async () => {
    try {
      await session.cancel();
      document.getElementById("main").focus({ preventScroll: true }); // the button disappears
    } catch (problem) {
      Object.assign(session, { problem }).changed();
    }
  };
  const onDeleted = () => {
    list.drop(record.task_id);
    navigate({ view: "tasks" });
  };
  return html`
    <div class="task-head">
      <${BackButton} navigate=${navigate} />
      <h2 class="task-title" title=${record?.title}>${record ? record.title || record.task_id : ""}</h2>
      ${
        record &&
        (session.past
          ? html`
              <${Chip}>entry ${session.past.seq}</${Chip}>
              <${StatusChip} status=${record.status} isPast />
            `
          : html`<${StatusChip} status=${record.status} />`)
      }
      ${session.connection === "reconnecting" && html`<span class="quiet small-text">reconnecting…</span>`}
      <span class="space"></span>
      ${
        usage?.calls > 0 &&
        html`
          <span class="task-usage quiet small-text">
            <span class="task-tokens">${formatTokens(usage)} · </span>
            ${formatCost(usage)}
          </span>
        `
      }
      ${record && html`<${IconButton} icon="share" label="Share this task" onClick=${() => setSharing(true)} />`}
      ${record && html`<${IconButton} icon="info" label="Details and usage" onClick=${() => setDetails(true)} />`}
      ${
        record &&
        !session.past &&
        CANCELLABLE.has(record.status) &&
        html`
          <${WorkButton} class="button small cancel" aria-label="Cancel the task" onClick=${cancel}>
            <${Icon} name="stop" />
            <span>Cancel</span>
          </${WorkButton}>
        `
      }
      ${isSharing && html`<${ShareDialog} taskId=${record.task_id} onClose=${() => setSharing(false)} />`}
      ${
        hasDetails &&
        html`
          <${Dialog} title="Details of the task" onClose=${() => setDetails(false)}>
            <div class="dialog-body">
              <${Details} record=${record} />
              <${SaveMarkdown} taskId=${record.task_id} />
              ${
                record.status !== "running" &&
                !session.past &&
                html`<${Delete} session=${session} onDeleted=${onDeleted} />`
              }
            </div>
          </${Dialog}>
        `
      }
    </div>
  `;
}
