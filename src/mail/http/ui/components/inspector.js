// Details of what is selected: a pane at the right on wide screens, a sheet over the page on narrow ones.

import { html, useEffect, useId, useRef } from "../html.js";
import { IconButton } from "./button.js";

/** Put it beside the content in an element of class `with-inspector`. Escape closes it. */
export function Inspector({ title, onClose, children }) {
  const heading = useId();
  const pane = useRef();
  useEffect(() => {
    const opener = document.activeElement;
    // A sheet covers what had the focus.
    if (getComputedStyle(pane.current).position === "fixed") pane.current.focus({ preventScroll: true });
    return () => opener?.isConnected && opener.focus();
  }, []);
  const onKeyDown = (event) => {
    if (event.key !== "Escape") return;
    event.stopPropagation();
    onClose();
  };
  return html`
    <aside ref=${pane} class="inspector" aria-labelledby=${heading} tabindex="-1" onKeyDown=${onKeyDown}>
      <div class="inspector-head">
        <h2 id=${heading}>${title}</h2>
        <${IconButton} icon="close" label="Close the details" onClick=${onClose} />
      </div>
      <div class="inspector-body" tabindex="0" role="group" aria-label="Details">${children}</div>
    </aside>
  `;
}
