// A modal dialog: the browser's own, which keeps the focus inside and closes with Escape.

import { html, useId, useLayoutEffect, useRef, useState } from "../html.js";
import { IconButton } from "./button.js";
import { useWork } from "./use-work.js";

/** Open while it is rendered; `onClose` is called when the reader closes it. */
export function Dialog({ title, onClose, isWide = false, children }) {
  const dialog = useRef();
  const heading = useId();
  // At once, so that a key that is pressed next is for the dialog.
  useLayoutEffect(() => {
    const opener = document.activeElement;
    const { current } = dialog;
    current.showModal();
    return () => {
      current.close(); // the page can't have the focus before
      opener?.focus?.();
    };
  }, []);
  const onCancel = (event) => {
    event.preventDefault();
    onClose();
  };
  return html`
    <dialog ref=${dialog} class=${`dialog ${isWide ? "wide" : ""}`} aria-labelledby=${heading} onCancel=${onCancel}>
      <div class="dialog-head">
        <h2 id=${heading}>${title}</h2>
        <${IconButton} icon="close" label="Close" onClick=${onClose} />
      </div>
      ${children}
    </dialog>
  `;
}

/**
 * A dialog whose form is sent once at a time: `submit()` returns a promise, whose value `onDone` gets. The form shows
 * what it was rejected with.
 */
export function FormDialog({ title, action, submit, onDone, onClose, isWide = false, isReady = true, children }) {
  const { perform, isBusy, said } = useWork();
  const onSubmit = (event) => {
    event.preventDefault();
    void perform(async () => onDone(await submit()));
  };
  return html`
    <${Dialog} title=${title} onClose=${onClose} isWide=${isWide}>
      <form onSubmit=${onSubmit}>
        <div class="dialog-body">${children} ${said}</div>
        <div class="dialog-actions">
          <button type="button" class="button" onClick=${onClose}>Back</button>
          <button type="submit" class="button primary" disabled=${!isReady} aria-busy=${isBusy ? "true" : null}>
            ${action}
          </button>
        </div>
      </form>
    </${Dialog}>
  `;
}

/** A question before something that can't be undone. */
export function Confirm({ title, action, children, onConfirm, onClose }) {
  return html`
    <${Dialog} title=${title} onClose=${onClose}>
      <div class="dialog-body">${children}</div>
      <div class="dialog-actions">
        <button type="button" class="button" onClick=${onClose}>Back</button>
        <button type="button" class="button danger" onClick=${onConfirm}>${action}</button>
      </div>
    </${Dialog}>
  `;
}

/** A button that asks before it acts: `children` stand in the question, the other properties are those of `Confirm`. */
export function ConfirmButton({ label, class: name = "button", disabled = false, onConfirm, ...question }) {
  const [isAsking, setAsking] = useState(false);
  const confirm = () => {
    setAsking(false);
    void onConfirm();
  };
  return html`
    <button type="button" class=${name} disabled=${disabled} onClick=${() => setAsking(true)}>${label}</button>
    ${isAsking && html`<${Confirm} ...${question} onClose=${() => setAsking(false)} onConfirm=${confirm} />`}
  `;
}
