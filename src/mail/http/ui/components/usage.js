// What models were paid, in words; a price that is unknown is never shown as 0.

import { html } from "../html.js";
import { count } from "./words.js";

/** Add up the numbers of usages, of which some may be missing. */
export function sumOf(usages) {
  const sum = {};
  for (const usage of usages)
    for (const [name, n] of Object.entries(usage ?? {})) if (typeof n === "number") sum[name] = (sum[name] ?? 0) + n;
  return sum;
}

/** Return the cost: `$0.0123`, `at least $0.0123`, `Price unknown`, or "" where nothing was called. */
export function formatCost({ calls = 0, cost = 0, unpriced_calls: unpriced = 0 }) {
  if (!calls) return "";
  if (unpriced >= calls) return "Price unknown";
  const price =
    cost === 0 ? "$0" : cost < 0.01 ? `$${Number(cost.toPrecision(2))}` : `$${cost.toFixed(cost < 1 ? 3 : 2)}`;
  return unpriced ? `at least ${price}` : price;
}

/** Return tokens: `1,200 tokens in · 34 out`. */
export const formatTokens = (usage) => `${count(usage.input_tokens)} tokens in · ${count(usage.output_tokens)} out`;

/** Return tokens and cost: `1,200 tokens in · 34 out · $0.012`. */
export const formatUsage = (usage) => (usage?.calls ? `${formatTokens(usage)} · ${formatCost(usage)}` : "");

/** Return the part of the input that came from the provider's cache: `85%`. */
export const formatHitRate = ({ input_tokens: read, cached_tokens: cached }) =>
  `${Math.round((100 * cached) / (read || 1))}%`;

const COLUMNS = [
  ["Calls", "calls"],
  ["Tokens in", "input_tokens"],
  ["Cached", "cached_tokens"],
  ["Cache writes", "cache_write_tokens"],
  ["Tokens out", "output_tokens"],
  ["Reasoning", "reasoning_tokens"],
];

const RARE = new Set(["cached_tokens", "cache_write_tokens", "reasoning_tokens"]);

/** A table of usage; `rows` maps names to usage. */
export function UsageTable({ first, rows, total }) {
  const all = [...Object.values(rows), ...(total ? [total] : [])];
  // Cached, written and reasoning tokens only where there are any.
  const columns = COLUMNS.filter(([, key]) => !RARE.has(key) || all.some((usage) => usage[key]));
  const row = (name, usage, isTotal) => html`
    <tr key=${name} class=${isTotal ? "total" : null}>
      <th scope="row">${name}</th>
      ${columns.map(([, key]) => html`<td>${count(usage[key] ?? 0)}</td>`)}
      <td class="cost">${formatCost(usage) || "–"}</td>
    </tr>
  `;
  return html`
    <div class="scroll-x usage-table" tabindex="0" role="group" aria-label=${`Usage by ${first.toLowerCase()}`}>
      <table>
        <thead>
          <tr>
            <th scope="col">${first}</th>
            ${columns.map(([title]) => html`<th scope="col">${title}</th>`)}
            <th scope="col">Cost</th>
          </tr>
        </thead>
        <tbody>
          ${Object.entries(rows).map(([name, usage]) => row(name, usage, false))}${total && row("All", total, true)}
        </tbody>
      </table>
    </div>
  `;
}
