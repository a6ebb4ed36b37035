// Writing: a new message, a draft, or an answer.

import { RetryKey } from "../api/api.js";
import { WorkButton } from "../components/button.js";
import { TextField } from "../components/field.js";
import { useWork } from "../components/use-work.js";
import { html, useEffect, useId, useRef, useState } from "../html.js";
import * as mail from "./api.js";

/** What was written but not sent, by what it answers, or its draft; "" for a new message. */
const written = new Map();

const blank = { id: null, to: "", subject: "", body: "" };

const split = (text) => text.split(/[\s,;]+/).filter(Boolean);

const ADDRESS = /^((user|admin|daemon):[^@:]+|(list:)?[^@:]+@[^@:]+)@[^@]+$/;

/** Throw an error, which says what to write, for the first text that is no address. */
function check(recipients, own) {
  const wrong = recipients.find((text) => !ADDRESS.test(text));
  if (!wrong) return;
  const host = own.slice(own.lastIndexOf("@"));
  const local = wrong.endsWith(host) ? wrong.slice(0, -host.length) : wrong;
  const meant = `${/[:@]/.test(local) ? "" : "user:"}${local}${host}`;
  throw new Error(`“${wrong}” is no address; write ${ADDRESS.test(meant) ? meant : `user:ann${host}`}`);
}

/** Addresses to choose from, each adds itself to the recipients. */
function Known({ own, onChoose }) {
  const [found, setFound] = useState(null);
  const look = async (event) => {
    if (!event.currentTarget.open || found) return;
    const [agents, lists] = await Promise.all([mail.agents(own), mail.lists()]).catch(() => [[], []]);
    setFound([...agents, ...lists.map(mail.addressOf)]);
  };
  return html`
    <details class="small-text" onToggle=${look}>
      <summary>Agents and lists</summary>
      <div class="row">
        ${found?.map(
          (address) => html`
            <button key=${address} type="button" class="button small" onClick=${() => onChoose(address)}>
              ${address}
            </button>
          `,
        )}
        ${found && !found.length && html`<p class="quiet">There are none.</p>`}
      </div>
    </details>
  `;
}

/**
 * A form for a message. `start` is what it begins with: `to`, `subject`, `body`, the `id` of a draft, and the id of the
 * message that it answers as `reply_to`. `place` names what is written, so that it stays while other mail is read.
 */
export function Compose({ own, place, start = {}, isReply = false, onSent, onSaved, onClose }) {
  const [draft, setDraft] = useState(() => written.get(place) ?? { ...blank, ...start });
  const { perform, isBusy, said } = useWork({ repeats: true });
  const keys = useRef(new RetryKey());
  const first = useRef();
  const id = useId();
  const latest = useRef(draft);
  const change = (facts) => {
    latest.current = { ...latest.current, ...facts };
    written.set(place, latest.current);
    setDraft(latest.current);
  };
  useEffect(() => first.current?.querySelector(isReply ? "textarea" : "input")?.focus(), []);
  const store = async () => {
    const { subject, body } = draft;
    const saved = await mail.save({ id: draft.id, subject, body, reply_to: draft.reply_to });
    change({ id: saved }); // another attempt changes this one
    return saved;
  };
  const send = () =>
    perform(async () => {
      const recipients = split(draft.to);
      check(recipients, own);
      const saved = await store();
      const { body, subject } = draft;
      const message = await mail.send(saved, recipients, keys.current.of({ saved, recipients, body, subject }));
      written.delete(place);
      onSent(message);
    });
  const keep = () =>
    perform(async () => {
      await store();
      written.delete(place);
      onSaved();
    });
  const onSubmit = (event) => {
    event.preventDefault();
    void send();
  };
  const isReady = split(draft.to).length > 0 && draft.subject && draft.body;
  return html`
    <form class="mail-form" ref=${first} aria-label=${isReply ? "Reply" : "New message"} onSubmit=${onSubmit}>
      <${TextField}
        label="To"
        id=${`${id}-to`}
        required
        spellcheck="false"
        autocomplete="off"
        help=${isReply ? null : "Addresses, such as user:ann@host, with commas between them"}
        value=${draft.to}
        onType=${(to) => change({ to })} />
      ${
        !isReply &&
        html`<${Known} own=${own} onChoose=${(one) => change({ to: [...split(draft.to), one].join(", ") })} />`
      }
      <${TextField}
        label="Subject"
        id=${`${id}-subject`}
        required
        maxlength="256"
        value=${draft.subject}
        onType=${(subject) => change({ subject })} />
      <${TextField}
        label="Text"
        id=${`${id}-body`}
        rows=${isReply ? 5 : 12}
        required
        maxlength="65535"
        value=${draft.body}
        onType=${(body) => change({ body })} />
      ${said}
      <div class="row">
        <button type="submit" class="button primary" disabled=${!isReady} aria-busy=${isBusy ? "true" : null}>
          Send
        </button>
        <${WorkButton} disabled=${!draft.subject || !draft.body} onClick=${keep}>Save as a draft</${WorkButton}>
        ${onClose && html`<button type="button" class="button quiet-button" onClick=${onClose}>Close</button>`}
      </div>
    </form>
  `;
}

/** Forget what a caller has written, before another one signs in. */
export const forgetWritten = () => written.clear();
