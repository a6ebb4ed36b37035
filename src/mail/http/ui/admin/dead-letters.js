// The dead letters of all callers.

import { Ago } from "../components/duration.js";
import { Empty } from "../components/notice.js";
import { useData } from "../components/use-data.js";
import { plural } from "../components/words.js";
import { html, useState } from "../html.js";
import { callerOf } from "./all-tasks.js";
import { More, Page, RowButton, Small, Table, useActs } from "./page.js";
import { deadLetters, settleLetters } from "./requests.js";

const PAGE = 100;
const MOST = 1000;
const COLUMNS = [
  ["Message", "wide"],
  ["Reason", "wide"],
  ["Task", "breakable"],
  ["When", "nowrap optional"],
  ["", "actions"],
];

/** Return where a mailbox belongs: an agent, `@` and a swarm, or `!` and a webhook. */
const mailboxName = (mailbox) =>
  ({ "@": `swarm ${mailbox.slice(1)}`, "!": `webhook ${mailbox.slice(1)}` })[mailbox[0]] ?? mailbox;

/** Return what `Confirm` asks before an action; "all" is a letter, too. */
function question(action, letter) {
  if (action === "redrive") {
    return {
      title: "Redrive all dead letters?",
      action: "Redrive",
      children: html`
        <p>All of them are processed again, for all callers. Failed tasks continue, and calls of models cost again.</p>
      `,
    };
  }
  const [title, subject] =
    letter === "all" ? ["Discard all dead letters?", "They are"] : ["Discard this dead letter?", "It is"];
  return {
    title,
    action: "Discard",
    children: html`
      <p>
        ${subject} taken off this list without being processed, and can't be redriven later. The task's events keep the
        message.
      </p>
    `,
  };
}

export function DeadLetters() {
  const [limit, setLimit] = useState(PAGE);
  const data = useData(() => deadLetters({ limit }), { about: [limit], every: 10 });
  const { said, act, ask } = useActs(data);
  const settle = (action, letter, perform) => {
    const chosen =
      letter === "all" ? { all: true } : { task_id: letter.task_id, seq: letter.seq, caller: letter.caller };
    const done = action === "redrive" ? "processed again" : "discarded";
    return perform(
      () => settleLetters(action, chosen),
      ({ count, failed }) => [
        `${plural(count, "message")} ${count === 1 ? "is" : "are"} ${done}.`,
        {
          tone: failed.length ? "warn" : "good",
          more: failed.map((each) => html`<p>${callerOf(each.caller)}, ${each.task_id}: ${each.reason}</p>`),
        },
      ],
    );
  };
  const confirm = (action, letter) => settle(action, letter, (...work) => ask(question(action, letter), ...work));
  return html`
    <${Page}
      title="Dead letters"
      about="Messages and webhook deliveries that could not be processed, of all callers."
      data=${data}>
      ${({ letters, hasMore }) => html`
        ${said}
        ${
          letters.length > 0 &&
          html`
            <div class="row">
              <button type="button" class="button" onClick=${() => confirm("redrive", "all")}>Redrive all…</button>
              <button type="button" class="button" onClick=${() => confirm("discard", "all")}>Discard all…</button>
            </div>
          `
        }
        <${Table}
          label="Dead letters"
          none=${html`<${Empty} title="No dead letters"><p>Every message could be processed.</p></${Empty}>`}
          columns=${COLUMNS}
          rows=${letters.map((letter) => [
            `${letter.caller}#${letter.task_id}#${letter.seq}`,
            html`
              ${letter.subject || "No subject"}
              <${Small}>${letter.sender} → ${mailboxName(letter.mailbox)}</${Small}>
            `,
            html`
              ${letter.reason}
              <${Small}>${plural(letter.attempts, "attempt")}</${Small}>
            `,
            html`
              ${callerOf(letter.caller)}
              <${Small}>${letter.task_id}</${Small}>
            `,
            html`<${Ago} time=${letter.timestamp} />`,
            html`
              <${RowButton}
                label=${`Redrive ${letter.subject}, event ${letter.seq} of ${letter.task_id}`}
                onClick=${() => void settle("redrive", letter, act)}>
                Redrive
              </${RowButton}>
              <${RowButton}
                label=${`Discard ${letter.subject}, event ${letter.seq} of ${letter.task_id}`}
                onClick=${() => confirm("discard", letter)}>
                Discard
              </${RowButton}>
            `,
          ])} />
        <${More} hasMore=${hasMore && limit < MOST} onClick=${() => setLimit(Math.min(MOST, limit + PAGE))} />
      `}
    </${Page}>
  `;
}
