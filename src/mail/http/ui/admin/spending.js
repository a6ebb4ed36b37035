// What tasks have cost, as rows of a table with bars. Pure, for tests in node.

const COUNTS = [
  "calls",
  "input_tokens",
  "cached_tokens",
  "cache_write_tokens",
  "output_tokens",
  "reasoning_tokens",
  "cost",
  "unpriced_calls",
];
const DAY = 86_400_000;

const plus = (one = {}, other = {}) =>
  Object.fromEntries(COUNTS.map((name) => [name, (one[name] ?? 0) + (other[name] ?? 0)]));

/** Add up the pages of `GET /usage`. */
export function addUp(pages) {
  const sums = { tasks: 0, total: plus(), agents: {}, models: {}, callers: {}, days: {}, versions: {} };
  for (const page of pages) {
    sums.tasks += page.tasks;
    sums.total = plus(sums.total, page.total);
    for (const kind of ["agents", "models", "callers", "days", "versions"]) {
      for (const [name, usage] of Object.entries(page[kind] ?? {})) sums[kind][name] = plus(sums[kind][name], usage);
    }
  }
  return sums;
}

/** Return a day, in UTC, as the server names it. */
export const dayOf = (time) => new Date(time).toISOString().slice(0, 10);

/** Return the days from `since` to `until` (milliseconds), the latest first; days without a call have no usage. */
export function fillDays(days, since, until) {
  const names = new Set(Object.keys(days));
  for (let time = until; time >= since; time -= DAY) names.add(dayOf(time));
  return Object.fromEntries(
    [...names]
      .sort()
      .reverse()
      .map((name) => [name, days[name] ?? plus()]),
  );
}

const cell = (value) => {
  const text = String(value);
  const safe = /^[=+\-@\t\r]/.test(text) ? `'${text}` : text; // or programs for tables would take it for a formula
  return /[",\n\r]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
};

/** Return usages as CSV (RFC 4180), with a line for each; `first` names the first column. Costs are US dollars. */
export const csvOf = (first, usages) =>
  [
    [first, ...COUNTS],
    ...Object.entries(usages).map(([name, usage]) => [name, ...COUNTS.map((each) => usage[each] ?? 0)]),
  ]
    .map((line) => `${line.map(cell).join(",")}\r\n`)
    .join("");

/**
 * Return `{rows, measure}`: `rows` are `{name, usage, share}`, where `share` (0 to 1) is the length of the bar. Bars
 * show costs; where no price is known at all, they show tokens.
 */
export function asRows(usages, { isSorted = true } = {}) {
  const entries = Object.entries(usages);
  const measure = entries.some(([, usage]) => usage.cost > 0) ? "cost" : "tokens";
  const value = ({ cost, input_tokens: read, output_tokens: written }) => (measure === "cost" ? cost : read + written);
  const most = Math.max(...entries.map(([, usage]) => value(usage)), 0);
  const rows = entries.map(([name, usage]) => ({ name, usage, share: most ? value(usage) / most : 0 }));
  if (isSorted) rows.sort((a, b) => b.share - a.share || a.name.localeCompare(b.name));
  return { rows, measure };
}
