// When tasks have last changed: the choices of a filter, and the times that they mean.

import { html } from "../html.js";

/** The first day and the one after the last, counted from today; none is open. */
const PRESETS = {
  __proto__: null, // so that an address with another word has none
  today: ["Today", 0],
  yesterday: ["Yesterday", -1, 0],
  week: ["Last 7 days", -6],
  month: ["Last 30 days", -29],
};

/** What stands between two days of the reader's choice, either of which may be missing. */
const TO = "..";

/** Return the times of a choice, `{since, until}` in ISO 8601, by the reader's days. */
export function timesOf(changed = "", now = new Date()) {
  const days = (count, day = now) => new Date(day.getFullYear(), day.getMonth(), day.getDate() + count);
  const [since, until] = changed.includes(TO)
    ? changed.split(TO).map((day, at) => days(at, new Date(`${day}T00:00`)))
    : (PRESETS[changed] ?? []).slice(1).map((count) => days(count));
  const asText = (time) => (time && !Number.isNaN(time.getTime()) ? time.toISOString() : undefined);
  return { since: asText(since), until: asText(until) };
}

/** Fields for a choice: `value` as in the address; `onChoose` gets another one. */
export function DateFilter({ value = "", onChoose }) {
  const isOwn = value.includes(TO);
  const days = isOwn ? value.split(TO) : [];
  const choose = (at) => (event) => onChoose(days.with(at, event.currentTarget.value).join(TO));
  return html`
    <select aria-label="Changed" value=${isOwn ? TO : value} onChange=${(event) => onChoose(event.currentTarget.value)}>
      <option value="">Any time</option>
      ${Object.entries(PRESETS).map(([id, [name]]) => html`<option key=${id} value=${id}>${name}</option>`)}
      <option value=${TO}>Between …</option>
    </select>
    ${
      isOwn &&
      ["From", "To"].map(
        (name, at) => html`
          <input key=${name} type="date" aria-label=${name} value=${days[at]} onChange=${choose(at)} />
        `,
      )
    }
  `;
}
