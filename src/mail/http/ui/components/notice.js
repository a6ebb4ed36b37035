// What a view says in place of content, or above it.

import { html, useEffect, useErrorBoundary } from "../html.js";
import { Icon } from "./icons.js";

const ICONS = { bad: "alert", warn: "alert", plain: "info", good: "check" };

/** A box with one fact, and at most one action. */
export function Notice({ tone = "plain", title, action, children }) {
  return html`
    <div class=${`notice ${tone}`} role=${tone === "bad" ? "alert" : null}>
      <${Icon} name=${ICONS[tone]} />
      <div class="notice-text">
        ${title && html`<p class="notice-title">${title}</p>`}
        ${children && html`<div>${children}</div>`}
      </div>
      ${action && html`<button type="button" class="button small" onClick=${action.onClick}>${action.name}</button>`}
    </div>
  `;
}

/**
 * Content that may fail without the rest of the page: a notice, or `instead`, takes its place until its `version`
 * changes.
 */
export function Guard({ what = "This entry", instead, version, children }) {
  const [error, reset] = useErrorBoundary((failure) => console.error(failure));
  useEffect(() => void (error && reset()), [version]);
  if (!error) return children;
  return (
    instead ??
    html`
      <${Notice} tone="bad" title=${`${what} can't be shown.`} action=${{ name: "Try again", onClick: reset }}>
        ${error.message}
      </${Notice}>
    `
  );
}

export const Loading = ({ what = "Loading…" }) => html`
  <p class="loading" role="status">
    <span class="spinner" aria-hidden="true"></span>
    ${what}
  </p>
`;

/** In place of a list or view without content. */
export function Empty({ title, children }) {
  return html`
    <div class="empty">
      <p class="empty-title">${title}</p>
      ${children}
    </div>
  `;
}
