// The task of another caller, which an admin reads for a reason that its owner sees. Nothing can be changed here.

import { Dialog } from "../components/dialog.js";
import { TextField } from "../components/field.js";
import { Told } from "../conversation/conversation.js";
import { Items } from "../conversation/items.js";
import { useData } from "../components/use-data.js";
import { html, useState } from "../html.js";
import { openedItems } from "./requests.js";

const ignore = () => {};

function Conversation({ task, caller, reason }) {
  const { data, instead } = useData(() => openedItems({ task_id: task.task_id, caller, reason }));
  if (instead) return instead;
  return html`
    <div class="chat" role="region" aria-label="Conversation" tabindex="0">
      <${Told} items=${new Items().with(data).shown} caller=${{}} navigate=${ignore} onTrace=${ignore} />
    </div>
  `;
}

/** `caller` is the owner of `task`, a summary. */
export function OpenedDialog({ task, caller, onClose }) {
  const [text, setText] = useState("");
  const [reason, setReason] = useState(null);
  const open = (event) => {
    event.preventDefault();
    setReason(text.trim());
  };
  return html`
    <${Dialog} title=${`${task.title || task.task_id}, of ${caller}`} isWide onClose=${onClose}>
      ${
        reason
          ? html`<${Conversation} task=${task} caller=${caller} reason=${reason} />`
          : html`
              <form class="dialog-body" onSubmit=${open}>
                <p>You are about to read what ${caller} and the agents wrote. The task and the audit will say so.</p>
                <${TextField}
                  label="Reason"
                  id="open-reason"
                  help=${`${caller} reads it, too.`}
                  required
                  maxlength="200"
                  value=${text}
                  onType=${setText} />
                <div class="dialog-actions"><button type="submit" class="button">Read the task</button></div>
              </form>
            `
      }
    </${Dialog}>
  `;
}
