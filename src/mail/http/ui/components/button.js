// Buttons that need more than a class.

import { html, useState } from "../html.js";
import { Icon } from "./icons.js";

/** A button that shows an icon only; `label` is read out, and shown as a tooltip. */
export function IconButton({ icon, label, onClick, ...others }) {
  return html`
    <button type="button" class="button icon-button" aria-label=${label} title=${label} onClick=${onClick} ...${others}>
      <${Icon} name=${icon} />
    </button>
  `;
}

/** A button whose work takes time: it can't be pressed again until the promise of `onClick` is settled. */
export function WorkButton({ onClick, class: name = "button", children, ...others }) {
  const [isBusy, setBusy] = useState(false);
  const work = async () => {
    if (isBusy) return;
    setBusy(true);
    try {
      await onClick();
    } finally {
      setBusy(false);
    }
  };
  return html`
    <button type="button" class=${name} aria-busy=${isBusy ? "true" : null} onClick=${work} ...${others}>
      ${children}
    </button>
  `;
}

/** A button that copies `text`. */
export function CopyButton({ text, label = "Copy" }) {
  const [isCopied, setCopied] = useState(false);
  const copy = async () => {
    await copyText(text);
    setCopied(true);
    setTimeout(() => setCopied(false), 1_500);
  };
  return html`
    <button
      type="button"
      class="button icon-button copy"
      aria-label=${isCopied ? "Copied" : label}
      title=${isCopied ? "Copied" : label}
      onClick=${copy}>
      <${Icon} name=${isCopied ? "check" : "copy"} />
    </button>
  `;
}

async function copyText(text) {
  if (navigator.clipboard) return navigator.clipboard.writeText(text);
  // Browsers keep the clipboard from pages that came over plain HTTP, unless from this machine.
  const field = document.createElement("textarea");
  field.value = text;
  document.body.append(field);
  field.select();
  document.execCommand("copy");
  field.remove();
  return undefined;
}
