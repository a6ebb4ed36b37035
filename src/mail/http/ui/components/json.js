// Data and code that people may want to read as they are.

import { html, useEffect, useMemo, useState } from "../html.js";
import { CopyButton } from "./button.js";
import { pretty } from "./pretty.js";

let piecesOf = null; // of colours.js, which comes with the first code in a language

/** Return the pieces of a text in a language, with their kinds; null until they are known, and for plain text. */
function usePieces(text, language) {
  const [isReady, setReady] = useState(piecesOf !== null);
  useEffect(() => {
    if (!language || isReady) return;
    import("./colours.js").then(
      (loaded) => {
        piecesOf = loaded.piecesOf;
        setReady(true);
      },
      () => {}, // it stays plain
    );
  }, [language]);
  return useMemo(() => (isReady && language ? piecesOf(text, language) : null), [text, language, isReady]);
}

/** A block of code or data, in the colours of its language, with a button that copies it. */
export function Code({ text, language = "", colours = language, label = "Copy" }) {
  const pieces = usePieces(text, colours);
  return html`
    <div class="code" data-language=${language}>
      ${language && html`<span class="code-language">${language}</span>`}
      <${CopyButton} text=${text} label=${label} />
      <pre tabindex="0"><code>${
        pieces
          ? pieces.map(([kind, piece]) => (kind ? html`<span class=${`code-${kind}`}>${piece}</span>` : piece))
          : text
      }</code></pre>
    </div>
  `;
}

/** A value as indented JSON. */
export const Json = ({ value }) => html`<${Code} text=${pretty(value)} colours="json" label="Copy the JSON" />`;
