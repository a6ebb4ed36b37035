// A message with the others of its thread, oldest first, and the answer to it.

import { formatRoute } from "../app/router.js";
import { Chip } from "../components/chip.js";
import { ConfirmButton } from "../components/dialog.js";
import { Ago } from "../components/duration.js";
import { Markdown } from "../components/markdown.js";
import { Loading, Notice } from "../components/notice.js";
import { useWork } from "../components/use-work.js";
import { useData } from "../components/use-data.js";
import { html, useEffect, useState } from "../html.js";
import * as mail from "./api.js";
import { Compose } from "./compose.js";

/** Messages of a thread that are found at once, the newest of each box. */
const MOST = 50;

/** Tags of mail that waits for its reader in *Needs you*, too. */
const ASKS = new Set(["question", "approval"]);

const isAgent = (address) => !address.includes(":");

/** Return the entries of the thread of an opened one, oldest first, each with its `box`. */
async function readThread(box, id) {
  const opened = await mail.open(box, id);
  const boxes = box === "trash" ? ["trash"] : ["inbox", "outbox"];
  const pages = await Promise.all(
    boxes.map(async (name) => {
      const { entries } = await mail.page(name, { thread: opened.thread, limit: MOST });
      return entries.map((entry) => ({ ...entry, box: name }));
    }),
  );
  // What one has sent to oneself is in both boxes, and shown once.
  const found = new Map(pages.reverse().flatMap((entries) => entries.map((entry) => [entry.message_id, entry])));
  found.set(id, { box, is_read: true, ...opened.message, opened });
  return [...found.values()].sort((one, other) => (one.sent_at < other.sent_at ? -1 : 1));
}

function Facts({ message, tags }) {
  return html`
    <p class="quiet small-text mail-to">to ${message.recipients.join(", ")}</p>
    ${
      tags.length > 0 &&
      html`
        <p class="row">
          ${tags.map((tag) => html`<${Chip} key=${tag}>${tag}</${Chip}>`)}
        </p>
      `
    }
  `;
}

/** Where a message comes from or leads to: tasks of the reader's, and what waits for a decision. */
function Links({ tasks = [], tags, isOwn }) {
  const asks = !isOwn && tags.some((tag) => ASKS.has(tag));
  if (!tasks.length && !asks) return null;
  return html`
    <p class="row small-text">
      ${tasks.map(
        (task) => html`
          <a key=${task} href=${`#${formatRoute({ view: "tasks", task })}`}>
            ${isOwn ? "Show its task" : "Show the task behind it"}
          </a>
        `,
      )}
      ${asks && html`<a href="#approvals">Decide in Needs you</a>`}
    </p>
  `;
}

function Delivery({ opened }) {
  const { undelivered = [], delivered_at: delivered, message } = opened;
  if (message === undefined || (!undelivered.length && delivered !== null)) return null;
  if (!undelivered.length) return html`<p class="quiet small-text">It is being delivered.</p>`;
  return html`
    <${Notice} tone="bad" title="It doesn't reach everybody.">
      <ul>
        ${undelivered.map(({ recipient, reason }) => html`<li key=${recipient}>${recipient}: ${reason}</li>`)}
      </ul>
    </${Notice}>
  `;
}

function Actions({ box, message, onGone }) {
  const { perform, said } = useWork();
  const gone = (work) => perform(async () => onGone(await work()));
  if (box === "outbox") return null;
  const id = message.message_id;
  const button = (name, work) => html`
    <button type="button" class="button small" onClick=${() => gone(work)}>${name}</button>
  `;
  const remove = () => mail.remove(box, id);
  return html`
    ${said}
    <div class="row">
      ${
        box === "trash"
          ? html`
              ${button("Restore", () => mail.restore(id))}
              <${ConfirmButton}
                label="Delete"
                class="button small"
                title="Delete this message?"
                action="Delete for good"
                onConfirm=${() => gone(remove)}>
                <p>This can't be undone.</p>
              </${ConfirmButton}>
            `
          : button("Delete", remove)
      }
    </div>
  `;
}

function Message({ entry, own, isOpen, onRead, onGone }) {
  const [opened, setOpened] = useState(entry.opened ?? null);
  const [isShown, setShown] = useState(isOpen);
  const [problem, setProblem] = useState(null);
  const { box, message_id: id } = entry;
  useEffect(() => {
    if (!isShown || opened) return;
    mail.open(box, id).then(setOpened, setProblem);
  }, [isShown]);
  useEffect(() => {
    if (opened && box === "inbox") onRead(id);
  }, [opened]);
  const sender = entry.sender ?? own;
  const isOwn = sender === own;
  return html`
    <article class=${`mail-message ${isOwn ? "own" : ""}`} aria-label=${`From ${sender}`}>
      <div class="mail-head">
        <button
          type="button"
          class="link-button mail-sender"
          aria-expanded=${String(isShown)}
          onClick=${() => setShown(!isShown)}>
          ${isOwn ? "you" : sender}
        </button>
        <span class="quiet small-text"><${Ago} time=${entry.sent_at} /></span>
      </div>
      ${problem && html`<${Notice} tone="bad">${problem.message}</${Notice}>`}
      ${isShown && !opened && !problem && html`<${Loading} />`}
      ${
        isShown &&
        opened &&
        html`
          <${Facts} message=${opened.message} tags=${opened.message.tags} />
          ${
            isAgent(sender)
              ? html`<${Markdown} text=${opened.message.body} />`
              : html`<p class="mail-text">${opened.message.body}</p>`
          }
          <${Links} tasks=${opened.tasks} tags=${opened.message.tags} isOwn=${isOwn} />
          ${box === "outbox" && html`<${Delivery} opened=${opened} />`}
          <${Actions} box=${box} message=${opened.message} onGone=${() => onGone(id)} />
        `
      }
    </article>
  `;
}

const answered = (subject) => (/^re:/i.test(subject) ? subject : `Re: ${subject}`).slice(0, 256);

/** The way to answer a message: its sender alone, or everybody who has it. */
function Reply({ message, own, onSent, onSaved }) {
  const [isToAll, setToAll] = useState(null); // null: nothing is written
  const { sender, recipients, subject, message_id: id } = message;
  const first = sender === own ? recipients : [sender];
  const all = [...new Set([sender, ...recipients])].filter((each) => each !== own);
  if (sender.startsWith("daemon:")) return null; // nobody reads answers to notices
  if (isToAll === null) {
    return html`
      <div class="row">
        <button type="button" class="button primary" onClick=${() => setToAll(false)}>Reply</button>
        ${
          all.length > first.length &&
          html`<button type="button" class="button" onClick=${() => setToAll(true)}>Reply to all</button>`
        }
      </div>
    `;
  }
  return html`
    <${Compose}
      key=${String(isToAll)}
      isReply
      own=${own}
      place=${`${id} ${isToAll}`}
      start=${{ to: (isToAll ? all : first).join(", "), subject: answered(subject), reply_to: id }}
      onSent=${onSent}
      onSaved=${onSaved}
      onClose=${() => setToAll(null)} />
  `;
}

/** `box` is the `Box` beside it; `id` is of one of its messages. */
export function Thread({ box, id, own, navigate, onSaid }) {
  const { problem, data: found, reload } = useData(() => readThread(box.name, id), { about: [box.name, id] });
  if (problem) return html`<div class="task-note"><${Notice} tone="bad">${problem.message}</${Notice}></div>`;
  if (!found) return html`<${Loading} />`;
  const last = found.at(-1);
  const chosen = found.find((entry) => entry.message_id === id);
  const onGone = (gone) => {
    box.mark(gone, true);
    if (gone === id) navigate({ view: "mail", box: box.name });
    else void reload();
  };
  const said = (text) => {
    onSaid(text);
    void reload();
    void box.refresh();
  };
  return html`
    <div class="mail-thread">
      <h2>${chosen.opened.message.subject}</h2>
      ${found.map(
        (entry) => html`
          <${Message}
            key=${`${entry.box} ${entry.message_id}`}
            entry=${entry}
            own=${own}
            isOpen=${entry === last || entry === chosen || entry.is_read === false}
            onRead=${(read) => box.mark(read)}
            onGone=${onGone} />
        `,
      )}
      ${
        box.name !== "trash" &&
        html`
          <${Reply}
            key=${id}
            message=${chosen.opened.message}
            own=${own}
            onSent=${() => said("Sent.")}
            onSaved=${() => said("Saved.")} />
        `
      }
    </div>
  `;
}
