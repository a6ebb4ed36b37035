// Where people write: what could not be sent stays, with Retry.

import * as api from "../api/api.js";
import { SelectField, TextField } from "../components/field.js";
import { Attached } from "../components/files.js";
import { Icon } from "../components/icons.js";
import { html, useEffect, useId, useLayoutEffect, useRef, useState } from "../html.js";

/** What was written but not sent, by task; "" for a new one. A draft is kept until it is sent. */
const drafts = new Map();
const blank = () => ({ body: "", subject: "", entrypoint: "", msg_type: "request", files: [], key: null });

/** Forget what a caller has written, before another one signs in. */
export const forgetDrafts = () => drafts.clear();

export const draftOf = (id) => drafts.get(id ?? "") ?? blank();

/** A field that grows with its text, up to a part of the window. */
export function GrowingField({ value, field, ...others }) {
  const own = useRef();
  const area = field ?? own;
  useLayoutEffect(() => {
    const { style } = area.current;
    style.height = "auto";
    style.height = `${Math.min(area.current.scrollHeight + 2, window.innerHeight * 0.35)}px`;
  }, [value]);
  return html`<textarea ref=${area} rows="1" value=${value} ...${others}></textarea>`;
}

/** Send with Enter; Shift+Enter begins a new line. */
export const onEnter = (send) => (event) => {
  if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
  event.preventDefault();
  send();
};

const TYPES = [
  ["request", "Request"],
  ["interrupt", "Interrupt"],
];

function Options({ draft, change, swarm, home, id }) {
  const open = swarm.agents.filter(({ enable_entrypoint }) => enable_entrypoint);
  return html`
    <div id=${id} class="composer-options">
      <${SelectField}
        label="To"
        id=${`${id}-to`}
        value=${draft.entrypoint || home}
        onChoose=${(entrypoint) => change({ entrypoint })}
        options=${open.map(({ name }) => [name, name])} />
      <${TextField}
        label="Subject"
        id=${`${id}-subject`}
        placeholder="New Message"
        value=${draft.subject}
        onType=${(subject) => change({ subject })} />
      <${SelectField}
        label="Type"
        id=${`${id}-type`}
        value=${draft.msg_type}
        onChoose=${(kind) => change({ msg_type: kind })}
        options=${TYPES} />
    </div>
  `;
}

/** Why a message was not sent, and what to do about it. */
function Refusal({ problem, canAnswer, onRetry, onAnswer, onDrop }) {
  if (!problem.pending.length) {
    return html`
      <div class="notice bad" role="alert">
        <${Icon} name="alert" />
        <p class="notice-text">Not sent. ${problem.message}</p>
        <button type="button" class="button small" onClick=${onRetry}>Retry</button>
      </div>
    `;
  }
  return html`
    <div class="notice warn" role="alert">
      <${Icon} name="question" />
      <p class="notice-text">The task waits for your answer, so it takes no other message.</p>
      ${canAnswer && html`<button type="button" class="button small" onClick=${onAnswer}>Send as the answer</button>`}
      <button type="button" class="button small" onClick=${onDrop}>Drop the question and send</button>
    </div>
  `;
}

/**
 * `id`: of the task, or null; `send(message, options)` and `answer(text)` reject with a `Problem`; `onSent` is called
 * after either.
 */
export function Composer({ id, swarm, home, placeholder, send, answer, canAnswer, onSent, fill }) {
  const [draft, setDraft] = useState(() => draftOf(id));
  const [problem, setProblem] = useState(null);
  const [isBusy, setBusy] = useState(false);
  const [hasOptions, setOptions] = useState(() =>
    Boolean(draft.subject || draft.entrypoint || draft.msg_type !== "request"),
  );
  const field = useRef();
  const chooser = useRef();
  const options = useId();
  const change = (facts) => {
    const next = { ...draftOf(id), ...facts, key: null };
    drafts.set(id ?? "", next);
    setDraft(next);
  };
  useEffect(() => {
    if (!fill) return;
    change({ body: fill.text });
    field.current.focus();
  }, [fill]);
  useEffect(() => {
    if (matchMedia("(min-width: 801px)").matches && document.activeElement === document.body)
      field.current?.focus({ preventScroll: true });
  }, []);

  const perform = async (work) => {
    if (isBusy || !draft.body.trim()) return;
    setBusy(true);
    setProblem(null);
    try {
      await work();
      drafts.delete(id ?? "");
      setDraft(blank());
      onSent?.();
      if (document.activeElement === document.body) field.current?.focus();
    } catch (failure) {
      if (!(failure instanceof api.Problem)) console.error(failure);
      setProblem(failure instanceof api.Problem ? failure : new api.Problem(500, String(failure)));
    }
    setBusy(false);
  };
  const submit = (facts = {}) =>
    perform(() => {
      // The same key until it is sent: a message whose acceptance was lost on the way is not accepted twice.
      draft.key ??= api.newKey();
      const { key, body, subject, entrypoint, msg_type } = draft;
      const files = draft.files.length ? { files: draft.files.map((file) => file.id) } : {};
      return send(
        { body, subject: subject || null, entrypoint: entrypoint || null, msg_type, ...files, ...facts },
        { key: facts.drop_question ? undefined : key },
      );
    });
  const attach = async (chosen) => {
    setProblem(null);
    for (const file of chosen) {
      try {
        const stored = await api.upload(file);
        change({ files: [...draftOf(id).files.filter((other) => other.id !== stored.id), stored] });
      } catch (failure) {
        if (!(failure instanceof api.Problem)) throw failure;
        setProblem(new api.Problem(failure.status, `${file.name}: ${failure.message}`));
      }
    }
  };
  const onChoose = (event) => {
    const { files } = event.currentTarget;
    void attach([...files]);
    event.currentTarget.value = "";
  };
  const onPaste = (event) => {
    const pasted = [...event.clipboardData.files];
    if (!pasted.length) return;
    event.preventDefault();
    void attach(pasted);
  };
  const onDrop = (event) => {
    event.preventDefault();
    void attach([...event.dataTransfer.files]);
  };
  const onSubmit = (event) => {
    event.preventDefault();
    void submit();
  };
  return html`
    <form class="composer" onSubmit=${onSubmit}>
      ${
        problem &&
        html`
          <${Refusal}
            problem=${problem}
            canAnswer=${canAnswer}
            onRetry=${() => submit()}
            onAnswer=${() => perform(() => answer(draft.body))}
            onDrop=${() => submit({ drop_question: true })} />
        `
      }
      ${hasOptions && html`<${Options} id=${options} draft=${draft} change=${change} swarm=${swarm} home=${home} />`}
      <div class="composer-field" onDragOver=${(event) => event.preventDefault()} onDrop=${onDrop}>
        <${Attached}
          files=${draft.files}
          onRemove=${({ id: gone }) => change({ files: draft.files.filter((file) => file.id !== gone) })} />
        <${GrowingField}
          field=${field}
          value=${draft.body}
          aria-label="Message"
          placeholder=${placeholder}
          aria-describedby="composer-help"
          onInput=${(event) => change({ body: event.currentTarget.value })}
          onPaste=${onPaste}
          onKeyDown=${onEnter(submit)} />
        <input ref=${chooser} type="file" multiple hidden aria-label="Files to attach" onChange=${onChoose} />
        <div class="composer-actions">
          <button type="button" class="button small quiet-button" onClick=${() => chooser.current.click()}>
            <${Icon} name="file" />
            Attach
          </button>
          <button
            type="button"
            class="button small quiet-button"
            aria-expanded=${String(hasOptions)}
            aria-controls=${options}
            onClick=${() => setOptions(!hasOptions)}>
            <${Icon} name="settings" />
            Options
          </button>
          <span id="composer-help" class="composer-help">Enter sends, Shift+Enter starts a new line</span>
          <button
            type="submit"
            class="button small primary"
            aria-busy=${isBusy ? "true" : null}
            aria-disabled=${draft.body.trim() ? null : "true"}>
            <${Icon} name="send" />
            Send
          </button>
        </div>
      </div>
    </form>
  `;
}
