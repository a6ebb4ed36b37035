// The waterfall: a row for each span, with its bar on a time axis; above it a lane for each agent.

import { AgentName, hueOf } from "../components/agent.js";
import { formatSeconds, formatTook } from "../components/duration.js";
import { Icon } from "../components/icons.js";
import { formatCost, sumOf } from "../components/usage.js";
import { useSize } from "../components/use-size.js";
import { plural } from "../components/words.js";
import { html, useMemo, useState } from "../html.js";
import { Cell, Said, Seq, VirtualList } from "./list.js";
import { makeScale, ticksOf } from "./scale.js";

const ROW = 30;
const LANE = 20;

/** In a pane of this width or less, each row has two lines: the bar is below the words. */
const NARROW = 560;
const TALL_ROW = 48;

/** Pixels that a bar is wide at least. */
const LEAST = 3;

/** Pixels between the ticks of the axis. */
const TICK = 84;

/** More rows than this can be zoomed in on. */
export const MANY_ROWS = 40;

const ICONS = { turn: "agent", model: "model", action: "tool", wait: "clock", message: "mail", end: "check" };
const WORDS = { turn: "turn", model: "model call", action: "action", wait: "wait", message: "message", end: "end" };

const percent = (part) => `${(part * 100).toFixed(3)}%`;

/**
 * Return how long a span took in words; "" for a moment. Without times in the record, it is how long it took at most.
 */
export function durationOf(span, now) {
  if (span.kind === "message" || span.kind === "end") return "";
  const took = formatTook(((span.end ?? now) - span.begin) / 1000);
  return span.kind === "turn" && !span.isTimed && !took.startsWith("<") ? `≤ ${took}` : took;
}

/** Return the seconds of a tick in words that differ from those of its neighbours: `2 min 5.5 s`. */
export function formatTick(seconds, ticks) {
  if (new Set(ticks.map((tick) => formatSeconds(tick.seconds))).size === ticks.length) return formatSeconds(seconds);
  const step = Math.min(...ticks.slice(1).map((tick, n) => tick.seconds - ticks[n].seconds));
  const digits = Math.min(3, Math.max(1, Math.ceil(-Math.log10(step) - 1e-9)));
  const minutes = Math.floor(seconds / 60);
  return `${minutes ? `${minutes} min ` : ""}${(seconds - 60 * minutes).toFixed(digits)} s`;
}

/** Return tokens of a span in words: `1.2k → 34`. */
export function tokensOf(usage) {
  if (!usage?.calls) return "";
  const short = (n) => (n < 1000 ? String(n) : `${(n / 1000).toFixed(n < 10_000 ? 1 : 0)}k`);
  return `${short(usage.input_tokens)} → ${short(usage.output_tokens)}`;
}

function Bar({ span, scale, now }) {
  const left = scale.position(span.begin);
  const right = scale.position(span.end ?? now);
  const queued = span.queued ? scale.position(span.queued) : left;
  // What a turn does ends with it, though both bars are wider than their times.
  const within =
    span.within &&
    `max(${percent(scale.position(span.within.begin))}, ${percent(scale.position(span.within.end))} - ${LEAST}px)`;
  const style = {
    left: `min(${[percent(left), `100% - ${LEAST}px`, within].filter(Boolean).join(", ")})`,
    width: percent(right - left),
  };
  const kinds = [span.kind, span.status, span.isTimed === false && "untimed", span.agent && `hue-${hueOf(span.agent)}`];
  return html`
    ${
      queued < left - 0.002 &&
      html`<span class="queued" style=${{ left: percent(queued), width: percent(left - queued) }}></span>`
    }
    <span class=${["span-bar", ...kinds.filter(Boolean)].join(" ")} style=${style}></span>
  `;
}

/** One line for each agent, with all its turns and what they have taken; a click selects the turn there. */
function Lanes({ agents, spans, scale, now, onSelect }) {
  const lanes = useMemo(() => {
    const found = new Map(agents.map((agent) => [agent, { agent, turns: [], calls: [] }]));
    for (const span of spans) {
      const lane = found.get(span.agent);
      if (!lane || span.kind === "wait") continue;
      (span.kind === "turn" ? lane.turns : lane.calls).push(span);
    }
    return [...found.values()];
  }, [agents.length, spans]);
  const path = (each) =>
    each
      .map((span) => {
        const left = scale.position(span.begin) * 1000;
        const width = Math.max(2, scale.position(span.end ?? now) * 1000 - left);
        return `M${left.toFixed(1)} 0h${width.toFixed(1)}v10H${left.toFixed(1)}z`;
      })
      .join("");
  const onClick = (lane) => (event) => {
    const box = event.currentTarget.getBoundingClientRect();
    const time = scale.invert((event.clientX - box.left) / box.width);
    const distance = (span) => Math.max(span.begin - time, time - (span.end ?? now), 0);
    const nearest = lane.turns.toSorted((a, b) => distance(a) - distance(b))[0];
    if (nearest) onSelect(nearest);
  };
  return html`
    <div class="lanes" role="presentation" aria-hidden="true">
      ${lanes.map(
        (lane) => html`
          <div key=${lane.agent} class=${`lane hue-${hueOf(lane.agent)}`} style=${{ height: `${LANE}px` }}>
            <${LaneFacts} lane=${lane} now=${now} />
            <svg class="lane-line" viewBox="0 0 1000 10" preserveAspectRatio="none" onClick=${onClick(lane)}>
              <path class="lane-turns" d=${path(lane.turns)} />
              <path class="lane-calls" d=${path(lane.calls)} />
            </svg>
          </div>
        `,
      )}
    </div>
  `;
}

function LaneFacts({ lane: { agent, turns }, now }) {
  const usage = sumOf(turns.map((turn) => turn.usage));
  const seconds = turns.reduce((sum, { begin, end }) => sum + ((end ?? now) - begin) / 1000, 0);
  return html`
    <span></span>
    <span class="span-name">
      <${AgentName} name=${agent} />
      <span class="quiet">${plural(turns.length, "turn")}</span>
    </span>
    <span class="span-cost">${tokensOf(usage)}</span>
    <span class="span-price">${formatCost(usage).replace("Price unknown", "unknown").replace("at least ", "≥ ")}</span>
    <span class="span-took">${formatTook(seconds)}</span>
  `;
}

/**
 * `spans` are those that match the filter, in the order of their rows; `all` those of the task, for the lanes. `zero`
 * is when the task began, `current` the id of the selected span, `at` the entry after which rows are dimmed (or
 * null), and `moment` its time in milliseconds. `isZoomed` shows the time of the visible rows only.
 */
export function Waterfall({
  spans,
  all,
  agents,
  zero,
  now,
  current,
  isRunning,
  isZoomed,
  at,
  moment = null,
  onMove,
  onOpen,
  labelEnd,
}) {
  const [range, setRange] = useState([0, 0]);
  const seen = isZoomed ? spans.slice(range[0], range[1] + 1) : spans;
  const scale = makeScale(seen.length ? seen : all, now);
  const [track, trackSize] = useSize();
  const [pane, paneSize] = useSize();
  const isNarrow = paneSize?.width > 0 && paneSize.width <= NARROW;
  const ticks = ticksOf(scale, zero, Math.max(1, Math.floor((trackSize?.width ?? 0) / TICK)));
  const index = spans.findIndex(({ id }) => id === current);
  const playhead =
    at !== null &&
    moment !== null &&
    html`<span class="playhead" style=${{ left: percent(scale.position(moment)) }}></span>`;
  const row = (n) => {
    const span = spans[n];
    const took = durationOf(span, now);
    const cost = span.usage ? formatCost(span.usage) : "";
    const tokens = tokensOf(span.usage);
    return {
      id: `span-${n}`,
      key: span.id,
      class: `span-row ${span.kind} ${span.status} ${at !== null && span.first > at ? "later" : ""}`,
      content: html`
        <${Seq} seq=${span.first} then=${`, ${WORDS[span.kind]}: `} />
        <span class=${`span-name ${span.parent ? "inner" : ""}`}>
          <${Icon} name=${span.status === "failed" ? "alert" : ICONS[span.kind]} size=${14} />
          ${
            span.agent &&
            (span.parent
              ? html`<${Said}>${span.agent} </${Said}>`
              : html`
                  <${AgentName} name=${span.agent} />
                  <${Said}> </${Said}>
                `)
          }
          <span class="span-what">${span.name}</span>
          ${
            span.snippet &&
            html`
              <${Said}>: </${Said}>
              <span class="node-text">${span.snippet}</span>
            `
          }
        </span>
        <${Cell} class="span-cost" said=", tokens " text=${tokens} />
        <${Cell} class="span-price" said=", cost " text=${cost === "Price unknown" ? "unknown" : cost} />
        <${Cell} class="span-took" text=${took}>
          ${span.status !== "ok" && html`<${Said}>, ${span.status}</${Said}>`}
        </${Cell}>
        <span class="span-track">
          <${Bar} span=${span} scale=${scale} now=${now} />
          ${playhead}
        </span>
      `,
    };
  };
  const byId = (span) => onOpen(span);
  return html`
    <div class=${`waterfall ${isNarrow ? "narrow" : ""}`} ref=${pane}>
      <div class="axis" aria-hidden="true">
        <span class="span-number">#</span>
        <span class="span-name">What happened</span>
        <span class="span-cost">Tokens</span>
        <span class="span-price">Cost</span>
        <span class="span-took">Duration</span>
        <span class="span-track" ref=${track}>
          ${ticks.map(
            ({ at, seconds }) => html`
              <span class="tick" style=${{ left: percent(at) }}>${formatTick(seconds, ticks)}</span>
            `,
          )}
          ${scale.pauses.map(
            ({ at, width, seconds }) => html`
              <span
                class="pause"
                style=${{ left: percent(at), width: percent(width) }}
                title=${`${formatSeconds(seconds)} without work are cut short`}></span>
            `,
          )}
          ${playhead}
        </span>
      </div>
      ${
        agents.length > 1 && html`<${Lanes} agents=${agents} spans=${all} scale=${scale} now=${now} onSelect=${byId} />`
      }
      <${VirtualList}
        id="trace-rows"
        label=${`Waterfall, ${spans.length} rows${labelEnd}`}
        count=${spans.length}
        rowHeight=${isNarrow ? TALL_ROW : ROW}
        row=${row}
        follows=${isRunning}
        current=${index < 0 ? null : index}
        onMove=${(n) => onMove(spans[n])}
        onOpen=${(n) => onOpen(spans[n])}
        onRange=${(first, last) => setRange([first, last])} />
    </div>
  `;
}
