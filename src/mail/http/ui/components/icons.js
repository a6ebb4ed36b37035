// A small set of icons, drawn on a 16 px grid in the colour of the text.

import { html } from "../html.js";

const PATHS = {
  mail: "M2 4.5h12v8H2zM2.5 5l5.5 4.5L13.5 5",
  sun:
    "M8 5.2a2.8 2.8 0 1 0 0 5.6 2.8 2.8 0 0 0 0-5.6zM8 1v1.6M8 13.4V15M1 8h1.6M13.4 8H15" +
    "M3 3l1.2 1.2M11.8 11.8 13 13M3 13l1.2-1.2M11.8 4.2 13 3",
  moon: "M13.5 9.6A5.8 5.8 0 0 1 6.4 2.5a5.8 5.8 0 1 0 7.1 7.1z",
  "sign-out": "M6.5 2.5h-4v11h4M10 5l3 3-3 3M13 8H6",
  plus: "M8 3v10M3 8h10",
  search: "M7 2.5a4.5 4.5 0 1 0 0 9 4.5 4.5 0 0 0 0-9zM10.3 10.3 14 14",
  back: "M9.5 3 4.5 8l5 5",
  right: "M6 3l5 5-5 5",
  down: "M3 6l5 5 5-5",
  up: "M3 10l5-5 5 5",
  close: "M3.5 3.5l9 9M12.5 3.5l-9 9",
  check: "M3 8.5l3.5 3.5L13 4.5",
  alert: "M8 2 1.5 13.5h13zM8 6.5v3.2M8 11.8v.2",
  info: "M8 1.8a6.2 6.2 0 1 0 0 12.4A6.2 6.2 0 0 0 8 1.8zM8 7.2v4M8 4.8V5",
  question:
    "M8 1.8a6.2 6.2 0 1 0 0 12.4A6.2 6.2 0 0 0 8 1.8z" + "M6.2 6.3a1.8 1.8 0 1 1 2.6 1.6c-.6.3-.8.7-.8 1.3M8 11.3v.2",
  file: "M4 1.8h5.2L12.5 5v9.2H4zM9 2v3.2h3.3",
  send: "M2.5 8 13.5 2.8 10.2 13.4 7.6 9zM7.6 9l5.9-6.2",
  stop: "M4 4h8v8H4z",
  play: "M5 3l8 5-8 5z",
  pause: "M5.5 3v10M10.5 3v10",
  retry: "M13 5.5A5.5 5.5 0 1 0 13.5 8M13.5 2.5v3.2h-3.2",
  edit: "M3 13l.6-2.9 7.6-7.6 2.3 2.3-7.6 7.6zM9.6 4.1l2.3 2.3",
  copy: "M5.5 5.5h8v8h-8zM10.5 5.5v-3h-8v8h3",
  share: "M8 10V2M5 4.5 8 1.8l3 2.7M4.5 7H3v7h10V7h-1.5",
  fork:
    "M4.5 5v6M4.5 5a1.6 1.6 0 1 0 0-3.2A1.6 1.6 0 0 0 4.5 5z" +
    "M4.5 14.2a1.6 1.6 0 1 0 0-3.2 1.6 1.6 0 0 0 0 3.2z" +
    "M11.5 5a1.6 1.6 0 1 0 0-3.2 1.6 1.6 0 0 0 0 3.2zM11.5 5c0 3-7 2.2-7 5.8",
  tool:
    "M10.2 2.4a3.4 3.4 0 0 0-3.9 4.7L2.4 11a1.8 1.8 0 0 0 2.6 2.6l3.9-3.9a3.4 3.4 0 0 0 4.7-3.9L11.5 8 9 7.6 8 5" + "z",
  model: "M8 1.8l1.5 4.7 4.7 1.5-4.7 1.5L8 14.2 6.5 9.5 1.8 8l4.7-1.5z",
  clock: "M8 1.8a6.2 6.2 0 1 0 0 12.4A6.2 6.2 0 0 0 8 1.8zM8 4.5V8l2.4 1.6",
  settings:
    "M2 5h7M12.5 5H14M2 11h1.5M7 11h7M10.8 3.2a1.8 1.8 0 1 0 0 3.6 1.8 1.8 0 0 0 0-3.6z" +
    "M5.2 9.2a1.8 1.8 0 1 0 0 3.6 1.8 1.8 0 0 0 0-3.6z",
  agent: "M8 2.2a2.9 2.9 0 1 0 0 5.8 2.9 2.9 0 0 0 0-5.8zM2.5 14c.4-3 2.6-4.5 5.5-4.5s5.1 1.5 5.5 4.5",
  zoom_in: "M7 2.5a4.5 4.5 0 1 0 0 9 4.5 4.5 0 0 0 0-9zM10.3 10.3 14 14M7 5v4M5 7h4",
  zoom_out: "M7 2.5a4.5 4.5 0 1 0 0 9 4.5 4.5 0 0 0 0-9zM10.3 10.3 14 14M5 7h4",
  fit: "M2.5 6V2.5H6M10 2.5h3.5V6M13.5 10v3.5H10M6 13.5H2.5V10",
};

/** A decoration: what it stands for is said beside it, or by its button. */
export function Icon({ name, size = 16 }) {
  return html`
    <svg class="icon" viewBox="0 0 16 16" width=${size} height=${size} aria-hidden="true" focusable="false">
      <path d=${PATHS[name]} />
    </svg>
  `;
}
