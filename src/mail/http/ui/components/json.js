// Data that people may want to read as it is.

import { html } from "../html.js";
import { CopyButton } from "./button.js";
import { pretty } from "./pretty.js";

/** A block of code or data with a button that copies it. */
export function Code({ text, language = "", label = "Copy" }) {
  return html`
    <div class="code" data-language=${language}>
      ${language && html`<span class="code-language">${language}</span>`}
      <${CopyButton} text=${text} label=${label} />
      <pre tabindex="0"><code>${text}</code></pre>
    </div>
  `;
}

/** A value as indented JSON. */
export const Json = ({ value }) => html`<${Code} text=${pretty(value)} label="Copy the JSON" />`;
