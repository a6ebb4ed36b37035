// What is known about something, as names and values.

import { html } from "../html.js";

/** `rows` are pairs of a name and what is shown for it; those without a value are left out. */
export const Facts = ({ rows }) => html`
  <dl class="facts-list">
    ${rows
      .filter(([, value]) => value !== null && value !== undefined && value !== "" && value !== false)
      .map(
        ([name, value]) => html`
          <div key=${name}>
            <dt>${name}</dt>
            <dd>${value}</dd>
          </div>
        `,
      )}
  </dl>
`;
