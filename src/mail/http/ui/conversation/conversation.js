// The task as a conversation.

import * as api from "../api/api.js";
import { AgentName, Way } from "../components/agent.js";
import { CopyButton, IconButton } from "../components/button.js";
import { Clock } from "../components/duration.js";
import { Files } from "../components/files.js";
import { Icon } from "../components/icons.js";
import { Json } from "../components/json.js";
import { Markdown } from "../components/markdown.js";
import { Guard, Notice } from "../components/notice.js";
import { useWork } from "../components/use-work.js";
import { html, prose, useEffect, useRef, useState } from "../html.js";
import { ForkDialog, rerun } from "../trace/fork.js";
import { indexOf, snapshotsOf } from "../trace/snapshots.js";
import { Composer } from "./composer.js";
import { jsonOf } from "./items.js";
import { Answered, Decision, Questions } from "./question.js";
import { useTail } from "./tail.js";
import { Waits } from "./waits.js";
import { Welcome } from "./welcome.js";
import { Work, Working } from "./work.js";

/** Items that are shown at first, and that "Earlier messages" adds. */
const PAGE = 60;

/** Kinds of messages and subjects that need no mention. */
const PLAIN_SUBJECTS = new Set(["", "New Message"]);

/** `onEdit(seq)` asks what to send in place of the message of an event. */
function Message({ item, isMine = false, label = `Message from ${isMine ? "you" : item.who}`, onEdit = null }) {
  return html`
    <article class=${`bubble mine ${item.isSending ? "is-sending" : ""}`} aria-label=${label}>
      <p class="bubble-head">
        ${isMine ? "You" : item.who}${item.type === "interrupt" ? " · interrupt" : ""}${
          item.time && html`<${Clock} time=${item.time} />`
        }${
          isMine &&
          onEdit &&
          html`
            <${IconButton}
              icon="edit"
              label="Edit this message"
              class="button icon-button small"
              onClick=${() => onEdit(item.seq)} />
          `
        }
      </p>
      ${!PLAIN_SUBJECTS.has(item.subject ?? "") && html`<p class="bubble-subject">${item.subject}</p>`}
      ${prose`<div class="bubble-text">${item.text}</div>`}
      <${Files} files=${item.files} />
    </article>
  `;
}

/** `onAgain` runs again what led to the answer. */
function Answer({ text, time, files, isWriting, onAgain = null }) {
  const value = isWriting ? undefined : jsonOf(text);
  return html`
    <article
      class=${`answer ${isWriting ? "is-writing" : ""}`}
      aria-label=${isWriting ? "The answer so far" : "Answer"}
      data-latest>
      ${value === undefined ? html`<${Markdown} text=${text} />` : html`<${Json} value=${value} />`}
      <${Files} files=${files} />
      ${
        time &&
        html`
          <div class="answer-foot">
            <${Clock} time=${time} />
            ${value === undefined && html`<${CopyButton} text=${text} label="Copy the answer" />`}
            ${onAgain && html`<${IconButton} icon="retry" label="Answer again, in a fork" onClick=${onAgain} />`}
          </div>
        `
      }
    </article>
  `;
}

/** What an agent writes to another one in plain text, until it is mail. */
const Growing = ({ from, to, text }) => html`
  <article class="answer is-writing" aria-label=${`${from} writes to ${to}`}>
    <p class="bubble-head">
      <${Way} from=${from} to=${[to]} />
    </p>
    <${Markdown} text=${text} />
  </article>
`;

function Failure({ item, onRetry, onTrace }) {
  const { perform, isBusy, problem } = useWork();
  return html`
    <div class="failure" role="group" aria-label="The task failed" data-latest>
      <p class="failure-head">
        <${Icon} name="alert" />
        The task failed
      </p>
      <p class="failure-text">${item.text}</p>
      ${problem && html`<p class="failure-text" role="alert">${problem.message}</p>`}
      <div class="row">
        ${
          onRetry &&
          html`
            <button
              type="button"
              class="button small"
              aria-busy=${isBusy ? "true" : null}
              onClick=${() => perform(onRetry)}>
              <${Icon} name="retry" />
              Retry
            </button>
          `
        }
        <button type="button" class="button small" onClick=${() => onTrace(item.seq)}>Show in the trace</button>
      </div>
    </div>
  `;
}

const Aside = ({ icon, children }) => html`
  <p class="aside">
    <${Icon} name=${icon} />
    <span>${children}</span>
  </p>
`;

/** What each kind of item looks like. */
const ITEMS = {
  message: ({ item, caller, onEdit }) => html`
    <${Message} item=${item} isMine=${item.who === caller?.id} onEdit=${onEdit} />
  `,
  work: ({ item, onTrace }) => html`<${Work} item=${item} onTrace=${onTrace} />`,
  answer: ({ item, onAgain }) => html`
    <${Answer} text=${item.text} time=${item.time} files=${item.files} onAgain=${onAgain} />
  `,
  told: ({ item }) => html`
    <article class="answer" aria-label=${`Message from ${item.who}`}>
      <p class="bubble-head">
        <${AgentName} name=${item.who} />
        <${Clock} time=${item.time} />
      </p>
      <${Markdown} text=${item.text} />
    </article>
  `,
  failed: ({ item, onRetry, onTrace }) => html`<${Failure} item=${item} onRetry=${onRetry} onTrace=${onTrace} />`,
  cancelled: ({ item }) => html`<${Aside} icon="stop">${item.text}</${Aside}>`,
  opened: ({ item }) => html`<${Aside} icon="alert">${item.text}</${Aside}>`,
  note: ({ item }) => html`<${Aside} icon="alert">${item.text}</${Aside}>`,
  forked: ({ item, navigate }) => html`
    <${Aside} icon="fork">
      Continues${" "}
      <button type="button" class="link-button" onClick=${() => navigate({ task: item.forked_from, at: item.at })}>
        another task
      </button>
      ${" "}from its entry ${item.at}
    </${Aside}>
  `,
  question: ({ item, caller }) => html`
    <${Answered} item=${item} />
    ${
      item.reply &&
      item.reply.text !== null &&
      html`
        <${Message}
          item=${{ ...item.reply, who: item.reply.by || (caller ? "You" : "Answer") }}
          label=${item.reply.by ? `Answer of ${item.reply.by}` : caller ? "Your answer" : "Answer"} />
      `
    }
  `,
};

/** Items as they are drawn; `others` are the properties of each, and `of(item)` returns more of them. */
export const Told = ({ items, of, ...others }) =>
  items.map(
    (item) => html`
      <${Guard} key=${item.id} version=${item.version}>
        <${ITEMS[item.kind]} item=${item} version=${item.version} ...${others} ...${of?.(item)} />
      </${Guard}>
    `,
  );

/** Whether a call waits for a decision: on one to approve, or by the reviewers who answer it. */
const isHeld = ({ needs_approval, reviewers }) => needs_approval || Boolean(reviewers);

/** What a person is asked at the moment: `{questions, approvals}` of the record's pending calls. */
function pendingOf(session, items) {
  const calls =
    session.record.status === "paused" && !session.past
      ? session.record.pending_tool_calls.filter(({ decision }) => !decision)
      : [];
  const pending = calls.map((call) => ({
    item: items.findLast(({ call_id, reply }) => call_id === call.call_id && !reply) ?? {
      ...call,
      agent: session.record.entrypoint,
    },
    call,
  }));
  return {
    questions: pending.filter(({ call }) => !isHeld(call)).map(({ item }) => item),
    approvals: pending.filter(({ call }) => isHeld(call)),
  };
}

/** Read out what is new: the end of the list, in a few words. */
function Announcement({ item, question }) {
  const text =
    question !== null
      ? `The task waits for your answer. ${question}`.trim()
      : item?.kind === "answer"
        ? `Answer: ${item.text.slice(0, 300)}`
        : item?.kind === "failed"
          ? `The task failed: ${item.text}`
          : item?.kind === "cancelled"
            ? item.text
            : "";
  return html`<p class="hidden-label" role="status" aria-live="polite">${text}</p>`;
}

function Talk({ session, swarm, caller, navigate }) {
  const { shown: items } = (session.past ?? session).items;
  const [shown, setShown] = useState(PAGE);
  const [wantsMessage, setWantsMessage] = useState(false);
  const [editing, setEditing] = useState(null); // the event of a message
  const [sent, setSent] = useState(null); // a message that was accepted, until its event comes
  const { questions, approvals } = pendingOf(session, items);
  const isAsked = questions.length + approvals.length > 0;
  const asked = new Set([...questions, ...approvals.map(({ item }) => item)]);
  const tail = useTail();
  useEffect(() => setWantsMessage(false), [isAsked]);
  const left = useRef([]);
  const calls = [...asked].map(({ call_id }) => call_id);
  useEffect(() => {
    // The card that had the focus is gone: the next one gets it, and not its button, which a second Enter would press.
    const isGone = left.current.some((call) => !calls.includes(call));
    if (isGone && document.activeElement === document.body)
      (tail.content.current.querySelector(".question-card") ?? tail.scroller.current).focus({ preventScroll: true });
    left.current = calls;
  }, [calls.join()]);
  useEffect(() => {
    if (sent && session.last > sent.after) setSent(null);
  }, [session.last]);

  const onTrace = (seq) => navigate({ tab: "trace", entry: seq });
  const onFork = (id) => navigate({ task: id });
  const again = async (item) => {
    const asked = items.slice(0, items.indexOf(item)).findLast(({ kind }) => kind === "message");
    const snapshots = snapshotsOf(session.events);
    try {
      onFork(await rerun(session, snapshots[indexOf(snapshots, asked.seq)].last));
    } catch (problem) {
      Object.assign(session, { problem }).changed();
    }
  };
  const last = items.findLast(({ kind }) => !["work", "opened", "note"].includes(kind));
  const ofLast = (item) =>
    item === last &&
    !session.past && {
      onAgain: () => again(item),
      onRetry: session.record.status === "failed" ? () => session.retry() : null,
    };
  const send = async (message, options) => {
    const after = session.last;
    await session.send(message, options);
    setSent({ text: message.body, after, isSending: true });
  };
  const writing = session.past ? [] : session.live.writing;
  const hasComposer = !session.past && (!isAsked || wantsMessage);
  return html`
    <div class="conversation">
      <div class="chat-scroll" ref=${tail.scroller} tabindex="0" role="region" aria-label="Conversation">
        <div class="chat" ref=${tail.content}>
          ${
            session.events[0]?.seq > 1 &&
            html`<${Notice} tone="plain">What happened in this task before has been deleted, as it was old.</${Notice}>`
          }
          ${
            items.length > shown &&
            html`
              <button
                type="button"
                class="button small earlier"
                onClick=${() => tail.keep(() => setShown(shown + PAGE))}>
                Earlier messages
              </button>
            `
          }
          <${Told}
            items=${items.slice(-shown).filter((item) => !asked.has(item))}
            of=${ofLast}
            caller=${caller}
            navigate=${navigate}
            onTrace=${onTrace}
            onEdit=${session.past ? null : setEditing} />
          ${sent && html`<${Message} item=${sent} isMine />`}
          <${Working} session=${session} />
          <${Waits} session=${session} />
          ${writing.map(({ from, to, text }) =>
            to === "user"
              ? html`<${Answer} key=${from} text=${text} isWriting />`
              : html`<${Growing} key=${from} from=${from} to=${to} text=${text} />`,
          )}
          ${approvals.map(
            ({ item, call }) => html`
              <${Guard} key=${item.call_id}>
                <${Decision} item=${item} call=${call} session=${session} swarm=${swarm} />
              </${Guard}>
            `,
          )}
          ${
            questions.length > 0 &&
            html`
              <${Guard} key=${questions.map(({ call_id }) => call_id).join()}>
                <${Questions} items=${questions} session=${session} />
              </${Guard}>
            `
          }
        </div>
      </div>
      <div class="chat-foot">
        ${
          tail.isBehind &&
          html`
            <button type="button" class="button small jump" onClick=${tail.jump}>
              <${Icon} name="down" />
              Jump to the latest
            </button>
          `
        }
        ${
          session.problem &&
          !session.problem.isUnreachable &&
          html`<${Notice} tone="bad">${session.problem.message}</${Notice}>`
        }
        ${
          session.past &&
          html`
            <${Notice} tone="plain" action=${{ name: "Back to now", onClick: () => navigate({ at: null }) }}>
              This is the task as of entry ${session.past.seq}.
            </${Notice}>
          `
        }
        ${
          isAsked &&
          !wantsMessage &&
          html`
            <p class="waits-for-you">
              The task waits for you.${" "}
              <button type="button" class="link-button" onClick=${() => setWantsMessage(true)}>
                Write a message instead
              </button>
            </p>
          `
        }
        ${
          hasComposer &&
          html`
            <${Composer}
              key=${session.id}
              id=${session.id}
              swarm=${swarm}
              home=${session.record.entrypoint}
              placeholder=${session.record.status === "running" ? "Write to the running task" : "Write a follow-up"}
              send=${send}
              answer=${(text) => session.answer(text)}
              canAnswer=${questions.length === 1 && !approvals.length}
              onSent=${tail.follow} />
          `
        }
      </div>
      ${
        editing !== null &&
        html`<${ForkDialog} session=${session} seq=${editing} onFork=${onFork} onClose=${() => setEditing(null)} />`
      }
      <${Guard} instead="" version=${last}>
        <${Announcement} item=${last} question=${isAsked ? (session.record.question ?? "") : null} />
      </${Guard}>
    </div>
  `;
}

function Begin({ swarm, navigate, onBegun }) {
  const [fill, setFill] = useState(null);
  const send = async (message, options) => {
    const id = await api.send(message, options);
    onBegun?.();
    navigate({ task: id });
  };
  return html`
    <div class="conversation is-new">
      <div class="chat-scroll"><${Welcome} swarm=${swarm} onPick=${(text) => setFill({ text })} /></div>
      <div class="chat-foot">
        <${Composer}
          id=${null}
          swarm=${swarm}
          home=${swarm.entrypoint}
          placeholder=${`Ask ${swarm.entrypoint}`}
          send=${send}
          fill=${fill} />
      </div>
    </div>
  `;
}

export function Conversation(props) {
  return html`<${props.session ? Talk : Begin} ...${props} />`;
}
