// The trace of a task: a waterfall of turns, model calls and actions, a tree of who asked whom, and all entries; with
// filters, an inspector, and the time-travel bar below.

import { useClock } from "../components/duration.js";
import { SearchField } from "../components/field.js";
import { Empty, Guard, Loading, Notice } from "../components/notice.js";
import { html, useMemo, useRef, useState } from "../html.js";
import { CompareView } from "./compare-view.js";
import { originOf } from "./compare.js";
import { readEntries } from "./entries.js";
import { EntriesView } from "./entries-view.js";
import { KINDS, NO_FILTER, filterEntries, filterSpans, isFiltered } from "./filters.js";
import { ForkDialog, originals } from "./fork.js";
import { TraceInspector } from "./inspector.js";
import { readSpans } from "./spans.js";
import { TimeBar } from "./time-bar.js";
import { TreeView } from "./tree-view.js";
import { MANY_ROWS, Waterfall } from "./waterfall.js";

const VIEWS = { waterfall: "Waterfall", tree: "Tree", entries: "Entries" };

/** Seconds between redraws while something runs. */
const TICK = 0.25;

function Toolbar({ view, onView, filter, onFilter, agents, shown, total, isZoomed, onZoom }) {
  const search = useRef();
  const set = (name) => (value) => onFilter({ ...filter, [name]: value });
  const choice = (name, label, all, options) => html`
    <select aria-label=${label} value=${filter[name]} onChange=${(event) => set(name)(event.currentTarget.value)}>
      <option value="">${all}</option>
      ${options.map(([id, each]) => html`<option key=${id} value=${id}>${each}</option>`)}
    </select>
  `;
  const clear = () => {
    search.current.focus(); // the button disappears
    onFilter(NO_FILTER);
  };
  return html`
    <div class="trace-bar">
      <div class="segments" role="group" aria-label="View">
        ${Object.entries(VIEWS).map(
          ([id, name]) => html`
            <button
              key=${id}
              type="button"
              class="segment"
              aria-pressed=${String(id === view)}
              onClick=${() => onView(id)}>
              ${name}
            </button>
          `,
        )}
      </div>
      <${SearchField} label="Search the trace" field=${search} value=${filter.text} onType=${set("text")} />
      ${choice(
        "agent",
        "Agent",
        "All agents",
        agents.map((agent) => [agent, agent]),
      )}
      ${choice("kind", "Kind", "All kinds", Object.entries(KINDS))}
      ${
        view === "waterfall" &&
        shown > MANY_ROWS &&
        html`
          <button type="button" class="button small" aria-pressed=${String(isZoomed)} onClick=${onZoom}>
            Zoom to visible rows
          </button>
        `
      }
      <span class="trace-count quiet small-text" role="status">
        ${isFiltered(filter) ? `${shown.toLocaleString("en")} of ${total.toLocaleString("en")}` : ""}
      </span>
      ${isFiltered(filter) && html`<button type="button" class="button small" onClick=${clear}>Clear</button>`}
    </div>
  `;
}

/** What runs now, as text: it stays the same while models write. */
const signatureOf = ({ agents }) =>
  JSON.stringify([...agents].map(([agent, { since, work }]) => [agent, since, ...work]));

/** What is selected, as the inspector takes it: `{span}`, or `{entry, turn}`. */
function selectionOf(id, { spans, entries }) {
  if (id === null) return null;
  if (typeof id === "string") {
    const span = spans.find((each) => each.id === id);
    if (!span) return null;
    if (span.kind === "turn") return { span };
    if (span.first === null || span.kind === "model")
      return { span: spans.find((each) => each.id === span.parent) ?? span };
    return {
      entry: entries[span.kind === "action" ? span.last - 1 : span.first - 1],
      turn: spans.find((each) => each.id === span.parent) ?? null,
    };
  }
  const entry = entries[id - 1];
  return entry
    ? {
        entry,
        turn:
          spans.find(({ kind, first, last }) => kind === "turn" && first !== null && first <= id && id <= last) ?? null,
      }
    : null;
}

export function Trace({ session, caller, navigate, entry: linked = null, isComparing }) {
  const [view, setView] = useState(linked === null ? "waterfall" : "entries");
  const [filter, setFilter] = useState(NO_FILTER);
  const [current, setCurrent] = useState(linked);
  const [isOpen, setOpen] = useState(linked !== null);
  const [isZoomed, setZoomed] = useState(false);
  const [forkAt, setForkAt] = useState(null);
  const { events, record } = session;
  const isRunning = session.isFollowing && !session.live.isIdle;
  const isPaused = record?.status === "paused";
  const clock = useClock(isRunning ? TICK : isPaused ? 1 : 60);
  const found = useMemo(
    () => readSpans(session.items.all, events, { live: session.live.agents, status: record?.status }),
    [events.length, record?.status, signatureOf(session.live)],
  );
  const entries = useMemo(() => readEntries(events), [events.length]);
  const spans = useMemo(() => filterSpans(found.spans, filter), [found, filter]);
  const lines = useMemo(() => (view === "entries" ? filterEntries(entries, filter) : entries), [entries, filter, view]);
  const matches = useMemo(() => {
    if (!isFiltered(filter)) return null;
    const seqs = new Set(
      filterEntries(entries, { ...filter, kind: filter.kind === "problem" ? "problem" : "" }).map(({ seq }) => seq),
    );
    const turns = new Set(spans.map(({ id }) => id));
    return (node) => seqs.has(node.seq) || (!filter.agent && node.turns.some(({ id }) => turns.has(id)));
  }, [entries, spans, filter]);
  const origin = useMemo(() => originOf(events) ?? originals.get(session.id) ?? null, [events.length > 0, session.id]);

  if (session.isLoading)
    return session.problem ? html`<${Notice} tone="bad">${session.problem.message}</${Notice}>` : html`<${Loading} />`;
  if (!events.length) return html`<${Empty} title="Nothing has happened yet" />`;

  const now = isRunning || isPaused ? Math.max(clock, found.end) : found.end;
  const selected = isOpen ? selectionOf(current, { spans: found.spans, entries }) : null;
  const open = (id) => {
    setCurrent(id);
    setOpen(true);
    const seq = typeof id === "number" ? id : null;
    if (seq !== null) navigate({ entry: seq }, { replace: true });
  };
  const close = () => {
    setOpen(false);
    if (linked !== null) navigate({ entry: null }, { replace: true });
  };
  const onFork = (id, others) => {
    setForkAt(null);
    navigate({ task: id, tab: "trace", ...others });
  };
  const labelEnd = isFiltered(filter) ? ", filtered" : "";
  const shared = { isRunning, labelEnd };
  const content = {
    waterfall: () => html`
      <${Waterfall}
        ...${shared}
        spans=${spans}
        all=${found.spans}
        agents=${found.agents}
        zero=${found.begin}
        now=${now}
        at=${session.at}
        moment=${session.past && Date.parse(session.past.updated)}
        current=${current}
        isZoomed=${isZoomed}
        onMove=${(span) => setCurrent(span.id)}
        onOpen=${(span) => open(span.id)} />
    `,
    tree: () => html`
      <${TreeView}
        items=${session.items.all}
        spans=${found.spans}
        matches=${matches}
        now=${now}
        current=${current}
        onMove=${(node) => setCurrent(node.id)}
        onOpen=${(node) => openNode(node)} />
    `,
    entries: () => html`
      <${EntriesView}
        ...${shared}
        entries=${lines}
        zero=${found.begin}
        at=${session.at}
        current=${current}
        onMove=${(entry) => setCurrent(entry.seq)}
        onOpen=${(entry) => open(entry.seq)} />
    `,
  };
  const openNode = (node) => {
    setCurrent(node.id);
    setOpen(true);
  };
  const chosen =
    selected ??
    (isOpen && typeof current === "string" && current.startsWith("message ")
      ? selectionOf(Number(current.slice(8)), { spans: found.spans, entries })
      : null);
  const onKeyDown = (event) => {
    if (event.key !== "Escape" || !isOpen) return;
    event.stopPropagation();
    close();
  };
  const isEmpty = isFiltered(filter) && !(view === "entries" ? lines.length : spans.length);
  return html`
    <div class="trace" onKeyDown=${onKeyDown}>
      ${
        !isComparing &&
        html`
          <${Toolbar}
            view=${view}
            onView=${setView}
            filter=${filter}
            onFilter=${setFilter}
            agents=${found.agents}
            isZoomed=${isZoomed}
            onZoom=${() => setZoomed(!isZoomed)}
            shown=${view === "entries" ? lines.length : spans.length}
            total=${view === "entries" ? entries.length : found.spans.length} />
        `
      }
      <div class="with-inspector">
        <div class=${`trace-pane ${session.at === null ? "" : "is-past"}`}>
          ${
            isComparing && origin
              ? html`<${CompareView} session=${session} origin=${origin} onOpen=${(entry) => open(entry.seq)} />`
              : isEmpty
                ? html`<${Empty} title="Nothing matches" />`
                : content[view]()
          }
        </div>
        ${
          chosen &&
          html`
            <${Guard} version=${current}>
              <${TraceInspector}
                session=${session}
                selected=${chosen}
                caller=${caller}
                onClose=${close}
                onTurn=${(turn) => open(turn.id)}
                onMoment=${(seq) => navigate({ at: seq === entries.length ? null : seq })}
                onFork=${setForkAt}
                onTried=${(id) => onFork(id, { isComparing: true })} />
            </${Guard}>
          `
        }
      </div>
      <${TimeBar}
        session=${session}
        navigate=${navigate}
        origin=${origin}
        isComparing=${isComparing}
        onCompare=${() => navigate({ isComparing: !isComparing }, { replace: true })}
        onFork=${onFork}
        onForkFrom=${setForkAt} />
      ${
        forkAt !== null &&
        html`<${ForkDialog} session=${session} seq=${forkAt} onFork=${onFork} onClose=${() => setForkAt(null)} />`
      }
    </div>
  `;
}
