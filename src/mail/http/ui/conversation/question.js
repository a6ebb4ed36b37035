// A call that waits for a person: a question to answer, or an action to approve.

import { Problem } from "../api/api.js";
import { AgentName } from "../components/agent.js";
import { Chip } from "../components/chip.js";
import { exactJson, sha256 } from "../components/exact.js";
import { TextField } from "../components/field.js";
import { Json } from "../components/json.js";
import { pretty } from "../components/pretty.js";
import { Markdown } from "../components/markdown.js";
import { Notice } from "../components/notice.js";
import { useWork } from "../components/use-work.js";
import { visible } from "../components/visible.js";
import { html, useEffect, useId, useRef, useState } from "../html.js";
import { ArgumentsForm, Changes, changesOf, fieldsOf, readForm, shownAs } from "./arguments-form.js";
import { GrowingField, onEnter } from "./composer.js";

const isEmpty = (value) => !Object.keys(value).length;

/** What is asked in words, if the call asks something, and what else its arguments say. */
function wordsOf({ asked, arguments: args }) {
  const others = Object.fromEntries(Object.entries(args).filter(([name]) => name !== asked?.argument));
  return { subject: asked?.subject, words: asked?.text, others: asked && !asked.argument ? {} : others };
}

/** The question in words, and what else the call says. */
function Words({ item }) {
  const { subject, words, others } = wordsOf(item);
  return html`
    <p class="question-who">
      <${AgentName} name=${item.agent} />
      ${
        words
          ? " asks:"
          : html`
              ${" "}calls${" "}
              <code>${item.name}</code>
              ${" "}and waits for the result:
            `
      }
    </p>
    ${subject && html`<p class="bubble-subject">${subject}</p>`}
    ${words && html`<div class="question-words"><${Markdown} text=${visible(words)} /></div>`}
    ${!isEmpty(others) && html`<${Json} value=${others} />`}
  `;
}

function AnswerForm({ item, draft, setDraft, onSend, isBusy, isOnly }) {
  const id = useId();
  const field = useRef();
  const { words } = wordsOf(item);
  useEffect(() => {
    const isFree = document.activeElement === document.body || document.activeElement?.closest(".composer");
    if (isOnly && isFree) field.current.focus({ preventScroll: true });
  }, []);
  return html`
    <div class="field">
      <label for=${id}>${words ? "Your answer" : `Result of ${item.name}`}</label>
      <div class="answer-field">
        <${GrowingField}
          field=${field}
          id=${id}
          value=${draft}
          onInput=${(event) => setDraft(event.currentTarget.value)}
          onKeyDown=${onEnter(onSend)} />
        ${
          isOnly &&
          html`
            <button type="button" class="button primary" aria-busy=${isBusy ? "true" : null} onClick=${onSend}>
              Send
            </button>
          `
        }
      </div>
    </div>
  `;
}

/** Questions that wait for answers: all of them are sent together. */
export function Questions({ items, session }) {
  const [drafts, setDrafts] = useState({});
  const { perform, isBusy, problem } = useWork();
  const isComplete = items.every(({ call_id }) => drafts[call_id]?.trim());
  const send = () =>
    isComplete && perform(() => session.answer(items.map(({ call_id }) => ({ call_id, content: drafts[call_id] }))));
  const isOnly = items.length === 1;
  return html`
    <div class="question-card" role="group" tabindex="-1" aria-label="Question for you">
      ${items.map(
        (item) => html`
          <div key=${item.call_id} class="question">
            <${Words} item=${item} />
            <${AnswerForm}
              item=${item}
              draft=${drafts[item.call_id] ?? ""}
              setDraft=${(text) => setDrafts((given) => ({ ...given, [item.call_id]: text }))}
              onSend=${send}
              isBusy=${isBusy}
              isOnly=${isOnly} />
          </div>
        `,
      )}
      ${
        problem &&
        html`
          <${Notice} tone="bad" action=${problem.permanent ? null : { name: "Retry", onClick: send }}>
            ${problem.message}
          </${Notice}>
        `
      }
      ${
        !isOnly &&
        html`
          <div>
            <button
              type="button"
              class="button primary"
              aria-busy=${isBusy ? "true" : null}
              aria-disabled=${isComplete ? null : "true"}
              onClick=${send}>
              Send the answers
            </button>
          </div>
        `
      }
    </div>
  `;
}

/** A question that reviewers answer, in place of the task's owner: one of them may here. */
function Asked({ item, call, session }) {
  const [draft, setDraft] = useState("");
  const { perform, isBusy, said } = useWork();
  const bound = { arguments_sha256: sha256(call.arguments_text) };
  const decide = (decision, facts) => perform(() => session.decide(item.call_id, decision, { ...facts, ...bound }));
  const { arguments: args, question } = item;
  const argument = question && Object.keys(args).find((name) => args[name] === question);
  const asked = argument ? { ...item, asked: { text: question, argument } } : item;
  return html`
    <div class="question-card" role="group" tabindex="-1" aria-label=${`${item.name} needs an answer`}>
      <${Words} item=${asked} />
      ${call.decide_by && html`<p class="quiet small-text">Answer by ${new Date(call.decide_by).toLocaleString()}</p>`}
      ${said}
      ${
        call.can_decide
          ? html`
              <${AnswerForm}
                item=${asked}
                draft=${draft}
                setDraft=${setDraft}
                onSend=${() => draft.trim() && decide("answer", { answer: draft })}
                isBusy=${isBusy}
                isOnly />
              <div class="row">
                <button type="button" class="button" onClick=${() => decide("reject")}>Decline</button>
              </div>
            `
          : html`<p class="quiet">Waits for the answer of ${call.reviewers.join(", ")}</p>`
      }
    </div>
  `;
}

/** A call on which a person decides: whether it runs or, if it is a question to reviewers, what they answer. */
export function Decision(facts) {
  return facts.call.needs_approval ? html`<${Approval} ...${facts} />` : html`<${Asked} ...${facts} />`;
}

/** Arguments, one line each where they are plain values. */
function Arguments({ args }) {
  if (isEmpty(args)) return html`<p class="quiet">No arguments</p>`;
  return html`
    <dl class="arguments">
      ${Object.entries(args).map(
        ([name, value]) => html`
          <div key=${name}>
            <dt>${name}</dt>
            <dd>
              ${typeof value === "object" && value !== null ? html`<pre>${pretty(value)}</pre>` : String(value)}
            </dd>
          </div>
        `,
      )}
    </dl>
  `;
}

/** Return the arguments that are typed, or null while they are none. */
function readOrNull(read) {
  try {
    return exactJson(read());
  } catch {
    return null;
  }
}

/**
 * A call of an action that needs approval; what is decided is bound to the arguments that are shown, which `call` has
 * as text. They are changed in a form by their schema, which the action of the `swarm` has, or as JSON.
 */
function Approval({ item, call, session, swarm }) {
  const [mode, setMode] = useState(null); // null, "edit" or "reject"
  const served = call.arguments_text;
  const args = served ? exactJson(served) : item.arguments;
  const { approve_by: approveBy, decide_by: decideBy } = call;
  const mayDecide = call.can_decide ?? !call.reviewers; // of a task, those who may are in Approvals
  const [text, setText] = useState(() => pretty(args));
  const [isRaw, setRaw] = useState(false);
  const parameters = swarm?.actions.find(({ name }) => name === item.name)?.parameters;
  const fields = fieldsOf(parameters, args);
  const typedOf = (values) => Object.fromEntries(fields.map(({ name, kind }) => [name, shownAs(kind, values[name])]));
  const [typed, setTyped] = useState(() => typedOf(args));
  const readTyped = () => (isRaw ? text : readForm(fields, typed, args));
  const [reason, setReason] = useState("");
  const { perform, isBusy, said } = useWork();
  const id = useId();
  const send = (decision, facts) =>
    session.decide(item.call_id, decision, { ...facts, ...(served ? { arguments_sha256: sha256(served) } : {}) });
  const decide = (decision, facts) => perform(() => send(decision, facts));
  const approveEdited = () =>
    perform(() => {
      const written = readTyped();
      let edited;
      try {
        edited = JSON.parse(written);
      } catch {
        throw new Problem(400, "The arguments are not valid JSON.");
      }
      if (!changesOf(args, exactJson(written)).length) return send("approve");
      if (pretty(exactJson(written)) !== pretty(edited))
        throw new Problem(400, "The page can't send a number with so many digits. Use mail task approve.");
      return send("edit", { arguments: edited });
    });
  const shown = mode === "edit" ? readOrNull(readTyped) : null;
  const isObject = shown && typeof shown === "object" && !Array.isArray(shown);
  /** Change between form and JSON, with what is typed if it can be read. */
  const switchForm = () => {
    if (isRaw && isObject) setTyped(typedOf(shown));
    if (!isRaw && isObject) setText(pretty(shown));
    setRaw(!isRaw);
  };
  const busy = isBusy ? "true" : null;
  const card = useRef();
  const former = useRef(null);
  useEffect(() => {
    if (mode) card.current.querySelector("textarea, input, select")?.focus();
    else if (former.current) card.current.querySelector(`[data-mode="${former.current}"]`)?.focus();
    former.current = mode;
  }, [mode]);
  const onKeyDown = (event) => {
    if (event.key !== "Escape" || !mode) return;
    event.stopPropagation();
    setMode(null);
  };
  return html`
    <div
      ref=${card}
      class="question-card"
      role="group"
      tabindex="-1"
      aria-label=${`${item.name} needs your approval`}
      onKeyDown=${onKeyDown}>
      <p class="question-who">
        <${AgentName} name=${item.agent} />
        ${" "}wants to run${" "}
        <code>${item.name}</code>
        <${Chip} tone="warn">needs approval</${Chip}>
      </p>
      ${call.needs_approval && call.question && html`<p>${visible(call.question)}</p>`}
      ${mode === "edit" && !isRaw && html`<${ArgumentsForm} fields=${fields} typed=${typed} onType=${setTyped} />`}
      ${
        mode === "edit" && isRaw
          ? html`
              <${TextField}
                label="Arguments"
                id=${id}
                class="mono"
                rows=${Math.min(text.split("\n").length + 1, 16)}
                spellcheck="false"
                value=${text}
                onType=${setText} />
            `
          : mode !== "edit" &&
            (isRaw ? html`<pre class="raw-arguments">${pretty(args)}</pre>` : html`<${Arguments} args=${args} />`)
      }
      ${mode === "edit" && isObject && html`<${Changes} before=${args} after=${shown} />`}
      ${
        mode === "reject" &&
        html`
          <${TextField}
            label="Reason, for the agent to read"
            id=${id}
            maxlength="1000"
            value=${reason}
            onType=${setReason} />
        `
      }
      ${
        approveBy &&
        !call.reviewers &&
        html`<p class="quiet small-text">Rejected unless approved by ${new Date(approveBy).toLocaleString()}</p>`
      }
      ${decideBy && html`<p class="quiet small-text">Decide by ${new Date(decideBy).toLocaleString()}</p>`}
      ${!mayDecide && html`<p class="quiet">Waits for the decision of ${call.reviewers.join(", ")}</p>`}
      ${said}
      <div class="row">
        ${
          mayDecide &&
          mode === null &&
          html`
            <button type="button" class="button primary" aria-busy=${busy} onClick=${() => decide("approve")}>
              Approve
            </button>
            <button type="button" class="button" data-mode="edit" onClick=${() => setMode("edit")}>Edit</button>
            <button type="button" class="button" data-mode="reject" onClick=${() => setMode("reject")}>Reject</button>
          `
        }
        ${
          mode === "edit" &&
          html`
            <button type="button" class="button primary" aria-busy=${busy} onClick=${approveEdited}>
              Approve with these arguments
            </button>
          `
        }
        ${
          mode === "reject" &&
          html`
            <button
              type="button"
              class="button danger"
              aria-busy=${busy}
              onClick=${() => decide("reject", reason ? { reason } : {})}>
              Reject
            </button>
          `
        }
        ${mode && html`<button type="button" class="button" onClick=${() => setMode(null)}>Back</button>`}
        ${
          mode !== "reject" &&
          html`
            <button type="button" class="button small" aria-pressed=${isRaw ? "true" : "false"} onClick=${switchForm}>
              JSON
            </button>
          `
        }
      </div>
    </div>
  `;
}

const DECISIONS = {
  approve: ["approved", "good"],
  edit: ["approved with changes", "good"],
  reject: ["rejected", "bad"],
};

/** A question that was answered, or a call that was decided on, or that nobody has answered. */
export function Answered({ item }) {
  if (item.needs_approval) {
    const [said, tone] = DECISIONS[item.reply?.decision] ?? ["no decision", "plain"];
    return html`
      <div class="answered">
        <p class="question-who">
          <${AgentName} name=${item.agent} />
          ${" "}wanted to run${" "}
          <code>${item.name}</code>
          <${Chip} tone=${tone}>${said}${item.reply?.by ? ` by ${item.reply.by}` : ""}</${Chip}>
        </p>
        <${Arguments} args=${item.reply?.arguments ?? item.arguments} />
        ${item.reply?.reason && html`<p class="quiet">Reason: ${item.reply.reason}</p>`}
        ${
          item.result &&
          html`
            <p class="answered-result">→ ${item.result.length > 400 ? `${item.result.slice(0, 400)}…` : item.result}</p>
          `
        }
      </div>
    `;
  }
  return html`
    <div class="answered">
      <${Words} item=${item} />
      ${!item.reply && html`<p class="quiet small-text">Not answered</p>`}
      ${
        item.reply?.decision === "reject" &&
        html`<p class="quiet small-text">Declined by ${item.reply.by || "nobody in time"}</p>`
      }
    </div>
  `;
}
