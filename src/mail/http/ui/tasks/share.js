// Links with which others read a task: the dialog that makes, lists and revokes them.

import * as api from "../api/api.js";
import { CopyButton, WorkButton } from "../components/button.js";
import { Dialog } from "../components/dialog.js";
import { formatDate } from "../components/duration.js";
import { SelectField } from "../components/field.js";
import { Loading } from "../components/notice.js";
import { useWork } from "../components/use-work.js";
import { html, useEffect, useState } from "../html.js";

const TIMES = [
  [1, "1 day"],
  [7, "7 days"],
  [30, "30 days"],
];

/** Days for which a browser's session can share a task. */
const MOST_OF_SESSION = 7;

export function ShareDialog({ taskId, onClose }) {
  const [shares, setShares] = useState(null);
  const [days, setDays] = useState(7);
  const [made, setMade] = useState(null); // the new link, and its address
  const { perform, said } = useWork({ repeats: true });
  const list = async () => setShares(await api.shares(taskId));
  useEffect(() => void perform(list), []);
  const make = () =>
    perform(async () => {
      const { code, number } = await api.share(taskId, days);
      setMade({ number, url: `${location.origin}${location.pathname}#shared=${code}` });
      await list();
    });
  const revoke = (number) =>
    perform(async () => {
      await api.revokeShare(taskId, number);
      if (made?.number === number) setMade(null);
      await list();
    });
  return html`
    <${Dialog} title="Share this task" onClose=${onClose}>
      <div class="dialog-body">
        <p>
          Anybody who has the link can read the conversation and the trace of this task, also what comes later, until it
          expires. It shows no prompts, nothing that actions got or returned, and no other task.
        </p>
        <div class="row share-new">
          <${SelectField}
            id="share-days"
            label="Expires after"
            value=${days}
            onChoose=${(value) => setDays(Number(value))}
            options=${TIMES.filter(([each]) => !api.token.isSession || each <= MOST_OF_SESSION)} />
          <${WorkButton} class="button primary" onClick=${make}>Create a link</${WorkButton}>
        </div>
        ${
          made &&
          html`
            <div class="field">
              <label for="share-url">The link; it is not shown again</label>
              <div class="row share-url">
                <input
                  id="share-url"
                  class="mono"
                  readonly
                  value=${made.url}
                  onFocus=${(event) => event.target.select()} />
                <${CopyButton} text=${made.url} label="Copy the link" />
              </div>
            </div>
          `
        }
        ${said} ${!shares && !said && html`<${Loading} />`}
        ${
          shares?.length > 0 &&
          html`
            <h3>Links that can be used</h3>
            <ul class="shares" aria-label="Links that can be used">
              ${shares.map(
                ({ number, created, expires }) => html`
                  <li key=${number} class="row">
                    <span class="mono">${number}</span>
                    <span class="quiet small-text">${formatDate(created)} to ${formatDate(expires)}</span>
                    <span class="space"></span>
                    <${WorkButton}
                      class="button small danger"
                      aria-label=${`Revoke the link ${number}`}
                      onClick=${() => revoke(number)}>
                      Revoke
                    </${WorkButton}>
                  </li>
                `,
              )}
            </ul>
          `
        }
      </div>
    </${Dialog}>
  `;
}
