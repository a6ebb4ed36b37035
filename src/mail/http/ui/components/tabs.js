// Tabs, by the pattern of the ARIA Authoring Practices: arrow keys move, one stop in the order of the Tab key.

import { html, useRef } from "../html.js";

const STEPS = { ArrowLeft: -1, ArrowRight: 1 };

/** `tabs`: `[{id, name, badge}]`; their panel has the id `panel` (see `TabPanel`). */
export function Tabs({ tabs, selected, onSelect, label, panel }) {
  const list = useRef();
  const onKeyDown = (event) => {
    const at = [...list.current.children].indexOf(document.activeElement); // the selected one may not be drawn yet
    const next =
      { Home: 0, End: tabs.length - 1 }[event.key] ??
      (event.key in STEPS ? (at + STEPS[event.key] + tabs.length) % tabs.length : null);
    if (next === null) return;
    event.preventDefault();
    onSelect(tabs[next].id);
    list.current.children[next].focus();
  };
  return html`
    <div class="tabs" role="tablist" aria-label=${label} ref=${list} onKeyDown=${onKeyDown}>
      ${tabs.map(
        ({ id, name, badge }) => html`
          <button
            key=${id}
            type="button"
            role="tab"
            id=${`${panel}-${id}`}
            aria-controls=${panel}
            class="tab"
            aria-selected=${String(id === selected)}
            tabindex=${id === selected ? 0 : -1}
            onClick=${() => onSelect(id)}>
            ${name}${badge && html`<span class="badge">${badge}</span>`}
          </button>
        `,
      )}
    </div>
  `;
}

/** What the selected tab shows. */
export function TabPanel({ id, selected, children, class: name = "" }) {
  return html`
    <div id=${id} role="tabpanel" aria-labelledby=${`${id}-${selected}`} class=${`tab-panel ${name}`}>${children}</div>
  `;
}
