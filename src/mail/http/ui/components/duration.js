// Times and durations, for people.

import { serverNow } from "../api/api.js";
import { html, useEffect, useState } from "../html.js";

/** Return seconds in words: `24 ms`, `3.4 s`, `1 min 5 s`, `2 h 3 min`. */
export function formatSeconds(seconds) {
  if (!Number.isFinite(seconds)) return "";
  if (seconds < 0.9995) return `${Math.max(0, Math.round(seconds * 1000))} ms`;
  if (seconds < 9.95) return `${seconds.toFixed(1)} s`;
  const whole = Math.round(seconds);
  if (whole < 60) return `${whole} s`;
  if (whole < 3600) return `${Math.floor(whole / 60)} min ${whole % 60} s`;
  return `${Math.floor(whole / 3600)} h ${Math.floor((whole % 3600) / 60)} min`;
}

/** Return how long something took, in words: as `formatSeconds`, and `< 1 ms` for what the record rounds to 0. */
export const formatTook = (seconds) => (seconds < 0.0005 ? "< 1 ms" : formatSeconds(seconds));

/**
 * Return the whole seconds since a time in milliseconds, in words that don't jump about: `0 s`, `59 s`, `1 min 0 s`.
 */
export const formatElapsed = (since, now) => {
  const whole = Math.max(0, Math.floor((now - since) / 1000));
  return whole < 60 ? `${whole} s` : formatSeconds(whole);
};

const UNITS = [
  ["year", 31_536_000],
  ["month", 2_592_000],
  ["day", 86_400],
  ["hour", 3_600],
  ["minute", 60],
];

/** Return how long ago a time was: `now`, `3 min. ago`, `yesterday`. */
export function formatAgo(time, now) {
  const seconds = (now - time) / 1000;
  for (const [unit, length] of UNITS) {
    if (seconds >= length)
      return new Intl.RelativeTimeFormat("en", { numeric: "auto", style: "short" }).format(
        -Math.floor(seconds / length),
        unit,
      );
  }
  return "just now";
}

/** Render again every `seconds`; returns the time by the server's clock, in milliseconds. */
export function useClock(seconds) {
  const [now, setNow] = useState(serverNow);
  useEffect(() => {
    const timer = setInterval(() => setNow(serverNow()), seconds * 1000);
    return () => clearInterval(timer);
  }, [seconds]);
  return Math.max(now, serverNow());
}

/** How long something has been going on; `since` in milliseconds by the server's clock. */
export function Elapsed({ since }) {
  return html`<span class="elapsed">${formatElapsed(since, useClock(1))}</span>`;
}

/** How long ago an ISO time was; the time itself is a tooltip. */
export function Ago({ time }) {
  const now = useClock(30);
  return html`
    <time datetime=${time} title=${new Date(time).toLocaleString()}>${formatAgo(Date.parse(time), now)}</time>
  `;
}

/** The time of day of an ISO time. */
export function Clock({ time }) {
  return html`
    <time datetime=${time} title=${new Date(time).toLocaleString()}>
      ${new Date(time).toLocaleTimeString([], { hour: "2-digit", minute: "2-digit" })}
    </time>
  `;
}

/** Return the day and the time of an ISO time, in words. */
export const formatDate = (time) => new Date(time).toLocaleString([], { dateStyle: "medium", timeStyle: "short" });
