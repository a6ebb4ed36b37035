// Tokens and cost of all callers' tasks.

import { serverNow } from "../api/api.js";
import { SelectField } from "../components/field.js";
import { saveAs } from "../components/files.js";
import { Empty, Notice } from "../components/notice.js";
import { formatCost, formatHitRate } from "../components/usage.js";
import { useData } from "../components/use-data.js";
import { html, useState } from "../html.js";
import { Page, Table } from "./page.js";
import { usage } from "./requests.js";
import { addUp, asRows, csvOf, dayOf, fillDays } from "./spending.js";

const DAY = 86_400_000;
const PERIODS = [
  ["7 days", 7],
  ["30 days", 30],
  ["90 days", 90],
  ["All time", null],
];
const GROUPS = [
  ["days", "Day"],
  ["agents", "Agent"],
  ["models", "Model"],
  ["callers", "Caller"],
  ["versions", "Version"],
];

const NUMBERS = ["Cost", "Calls", "Tokens in", "Cached", "Hit rate", "Tokens out"];

const count = (number) => number.toLocaleString("en");

export function Usage() {
  const [period, setPeriod] = useState(1);
  const [group, setGroup] = useState("days");
  const [version, setVersion] = useState("");
  const [versions, setVersions] = useState([]);
  const days = PERIODS[period][1];
  const data = useData(
    async () => {
      const until = serverNow();
      const since = days && until - (days - 1) * DAY;
      const { pages, isComplete } = await usage({
        since: since ? dayOf(since) : undefined,
        version: version || undefined,
      });
      const sums = addUp(pages);
      setVersions((known) => [...new Set([...known, ...Object.keys(sums.versions)])].filter(Boolean));
      return { sums, isComplete, since, until };
    },
    { about: [days, version], every: 30 },
  );
  return html`
    <${Page}
      title="Usage and cost"
      about="Model calls of all callers' tasks. A task counts on the day it began, in UTC."
      data=${data}>
      ${({ sums, isComplete, since, until }) => html`
        <div class="row admin-filters">
          <${SelectField}
            label="Period"
            id="usage-period"
            value=${period}
            onChoose=${(at) => setPeriod(Number(at))}
            options=${PERIODS.map(([name], at) => [at, name])} />
          <${SelectField}
            label="Group by"
            id="usage-group"
            value=${group}
            onChoose=${setGroup}
            options=${GROUPS.map(([id, name]) => [id, name.toLowerCase()])} />
          ${
            versions.length > 1 &&
            html`
              <${SelectField}
                label="Version of the swarm"
                id="usage-version"
                value=${version}
                onChoose=${setVersion}
                options=${[["", "all"], ...versions.map((digest) => [digest, digest])]} />
            `
          }
          <button type="button" class="button" onClick=${() => saveCsv(group, sums[group])}>Save as CSV</button>
        </div>
        ${
          !isComplete &&
          html`
            <${Notice} tone="warn">
              Only the newest ${count(sums.tasks)} tasks are counted. Choose a shorter period.
            </${Notice}>
          `
        }
        <dl class="figures">
          <div>
            <dt>Cost</dt>
            <dd>${formatCost(sums.total) || "–"}</dd>
          </div>
          <div>
            <dt>Model calls</dt>
            <dd>${count(sums.total.calls)}</dd>
          </div>
          <div>
            <dt>Tokens in</dt>
            <dd>${count(sums.total.input_tokens)}</dd>
          </div>
          <div>
            <dt>Tokens out</dt>
            <dd>${count(sums.total.output_tokens)}</dd>
          </div>
          <div>
            <dt>Tasks</dt>
            <dd>${count(sums.tasks)}</dd>
          </div>
        </dl>
        ${
          sums.total.unpriced_calls > 0 &&
          sums.total.unpriced_calls < sums.total.calls &&
          html`
            <p class="quiet small-text">The price of ${count(sums.total.unpriced_calls)} of these calls is unknown.</p>
          `
        }
        ${
          sums.total.calls
            ? html`
                ${
                  group === "days" && html`<${Chart} usages=${since ? fillDays(sums.days, since, until) : sums.days} />`
                }
                <${Bars} title=${nameOf(group)} usages=${sums[group]} isDays=${group === "days"} />
              `
            : html`<${Empty} title="No calls of models in this period" />`
        }
      `}
    </${Page}>
  `;
}

const nameOf = (group) => GROUPS.find(([id]) => id === group)[1];

function saveCsv(group, usages) {
  const text = csvOf(nameOf(group).toLowerCase(), usages);
  saveAs(new Blob([text], { type: "text/csv" }), `usage-by-${nameOf(group).toLowerCase()}.csv`);
}

/** A column for each day, the oldest first; the table below has the numbers. */
function Chart({ usages }) {
  const { rows, measure } = asRows(usages, { isSorted: false });
  rows.sort((a, b) => (a.name < b.name ? -1 : 1));
  const inWords = ({ usage }) =>
    measure === "cost" ? formatCost(usage) || "$0" : `${count(usage.input_tokens + usage.output_tokens)} tokens`;
  const most = rows.reduce((a, b) => (b.share > a.share ? b : a));
  const words = `${measure === "cost" ? "Cost" : "Tokens"} by day, at most ${inWords(most)} on ${most.name}`;
  return html`
    <figure class="usage-chart card" role="img" aria-label=${words}>
      <figcaption class="quiet small-text">${words}</figcaption>
      <div class="chart-columns">
        ${rows.map(
          (row) => html`
            <span key=${row.name} class="chart-column" title=${`${row.name}: ${inWords(row)}`}>
              <span style=${{ height: `${row.share * 100}%` }}></span>
            </span>
          `,
        )}
      </div>
      <div class="chart-ends quiet small-text">
        <span>${rows[0].name}</span>
        <span>${rows.at(-1).name}</span>
      </div>
    </figure>
  `;
}

function Bars({ title, usages, isDays }) {
  const { rows, measure } = asRows(usages, { isSorted: !isDays });
  if (isDays) rows.sort((a, b) => (a.name < b.name ? 1 : -1));
  const columns = [
    [title, "name"],
    [measure === "cost" ? "By cost" : "By tokens", "bar-cell"],
    ...NUMBERS.map((number) => [number, "number"]),
  ];
  return html`
    <${Table}
      label=${`Usage by ${title.toLowerCase()}`}
      columns=${columns}
      rows=${rows.map(({ name, usage: each, share }) => [
        name,
        name,
        share > 0 &&
          html`<span class="usage-bar" aria-hidden="true"><span style=${{ width: `${share * 100}%` }}></span></span>`,
        ...(each.calls
          ? [
              formatCost(each),
              ...[each.calls, each.input_tokens, each.cached_tokens].map(count),
              formatHitRate(each),
              count(each.output_tokens),
            ]
          : NUMBERS.map(() => "–")),
      ])} />
  `;
}
