// Labelled fields of forms.

import { html } from "../html.js";
import { Icon } from "./icons.js";

/** A label, a control with this `id` as the child, and what helps to fill it in. */
export function Field({ label, help, children, id }) {
  return html`
    <div class="field">
      <label for=${id}>${label}</label>
      ${children}${help && html`<p class="quiet small-text" id=${`${id}-help`}>${help}</p>`}
    </div>
  `;
}

/** A field for a line of text, or with `rows` for several; `others` are attributes of the control. */
export function TextField({ label, help, id, onType, ...others }) {
  const control = { id, ...others, onInput: (event) => onType(event.currentTarget.value) };
  return html`
    <${Field} label=${label} help=${help} id=${id}>
      ${others.rows ? html`<textarea ...${control}></textarea>` : html`<input ...${control} />`}
    </${Field}>
  `;
}

/** A choice; `options` are pairs of a value and what is shown for it. */
export function SelectField({ label, id, value, onChoose, options }) {
  return html`
    <${Field} label=${label} id=${id}>
      <select id=${id} value=${value} onChange=${(event) => onChoose(event.currentTarget.value)}>
        ${options.map(([each, name]) => html`<option key=${each} value=${each}>${name}</option>`)}
      </select>
    </${Field}>
  `;
}

/** A field for what to search for; `field` is a reference to the control. */
export const SearchField = ({ label, placeholder = "Search", value, onType, field }) => html`
  <div class="search-field">
    <${Icon} name="search" />
    <input
      ref=${field}
      type="search"
      aria-label=${label}
      placeholder=${placeholder}
      value=${value}
      onInput=${(event) => onType(event.currentTarget.value)} />
  </div>
`;

/** One of several choices: `children` explain it. */
export const Radio = ({ name, id, label, isChosen, onChoose, children }) => html`
  <div class="choice">
    <input
      type="radio"
      name=${name}
      id=${id}
      checked=${isChosen}
      onChange=${onChoose}
      aria-describedby=${children && `${id}-note`} />
    <div>
      <label for=${id}>${label}</label>
      ${children && html`<p id=${`${id}-note`} class="quiet small-text">${children}</p>`}
    </div>
  </div>
`;
