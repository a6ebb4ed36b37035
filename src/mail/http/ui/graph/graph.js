// The graph of a swarm: who may write to whom and, in a task, who works and where mail goes.

import { serverNow } from "../api/api.js";
import { agentOf, hueOf } from "../components/agent.js";
import { IconButton } from "../components/button.js";
import { formatElapsed, useClock } from "../components/duration.js";
import { useSize } from "../components/use-size.js";
import { plural } from "../components/words.js";
import { html, useEffect, useLayoutEffect, useMemo, useRef, useState } from "../html.js";
import { NODE, SMALL, layout } from "./layout.js";
import { graphOf, mailNote, modelOf, neighbours, noteOf, shortName, toolNote } from "./model.js";
import { fit, nextNode, open, pan, reveal, stepOf, zoom } from "./viewport.js";

const FONT = "600 14px system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', sans-serif";
const BUTTON_ZOOM = 1.25;

/** How much larger another layout must be shown to replace the one that the reader knows. */
const BETTER = 1.25;

/** Pixels that a pointer moves before it drags. */
const SLACK = 4;

let context;
function measure(text) {
  context ??= document.createElement("canvas").getContext("2d");
  context.font = FONT;
  return context.measureText(text).width;
}

/**
 * The layout, computed again when the graph changes; when the pane does, only if another layout can be shown much
 * larger.
 */
function useLayout(graph, size) {
  const shape = JSON.stringify([
    graph.root,
    graph.nodes.map(({ id, name, note, reserve, detail }) => [id, name, note, reserve, detail]),
    graph.edges.map(({ key, both }) => [key, both]),
  ]);
  const last = useRef({});
  const bucket = size && [Math.round(size.width / 80), Math.round(size.height / 80)].join();
  return useMemo(() => {
    if (!size?.width || !size.height) return null;
    const drawing = layout(graph, { ...size, measure });
    const isBetter =
      last.current.shape !== shape || fit(drawing, size).scale > BETTER * fit(last.current.drawing, size).scale;
    if (isBetter) last.current = { shape, drawing };
    return last.current.drawing;
  }, [shape, bucket]);
}

/** The view of a drawing, which fits the pane until the reader moves it. */
function useView(drawing, size, root) {
  const [view, setView] = useState(null);
  const isMoved = useRef(false);
  useLayoutEffect(() => {
    if (drawing && !isMoved.current)
      setView(
        open(
          drawing,
          size,
          drawing.nodes.find(({ id }) => id === root),
        ),
      );
  }, [drawing, size]);
  const move = (change, { isReader = true } = {}) => {
    isMoved.current ||= isReader;
    setView((old) => (old ? change(old) : old));
  };
  const reset = () => {
    isMoved.current = false;
    setView(fit(drawing, size));
  };
  return [view ?? { x: 0, y: 0, scale: 1 }, move, reset];
}

/** Handlers that pan with one pointer and zoom with two. */
function usePointers(move, drawing, size) {
  const pointers = useRef(new Map());
  const dragged = useRef(false);
  const at = (event) => ({
    x: event.offsetX ?? 0,
    y: event.offsetY ?? 0,
    clientX: event.clientX,
    clientY: event.clientY,
  });
  const onPointerDown = (event) => {
    if (event.button) return;
    if (!pointers.current.size) dragged.current = false;
    pointers.current.set(event.pointerId, { ...at(event), startX: event.clientX, startY: event.clientY });
  };
  const onPointerMove = (event) => {
    const last = pointers.current.get(event.pointerId);
    if (!last) return;
    if (!dragged.current && Math.hypot(event.clientX - last.startX, event.clientY - last.startY) < SLACK) return;
    if (!dragged.current) event.currentTarget.setPointerCapture(event.pointerId);
    dragged.current = true;
    const other = [...pointers.current].find(([id]) => id !== event.pointerId)?.[1];
    const [dx, dy] = [event.clientX - last.clientX, event.clientY - last.clientY];
    if (other) {
      const box = event.currentTarget.getBoundingClientRect();
      const distance = (one) => Math.hypot(one.clientX - other.clientX, one.clientY - other.clientY) || 1;
      const factor = distance(event) / distance(last);
      const middle = { x: (event.clientX + other.clientX) / 2 - box.x, y: (event.clientY + other.clientY) / 2 - box.y };
      move((view) => pan(zoom(view, factor, middle), dx / 2, dy / 2, drawing, size));
    } else move((view) => pan(view, dx, dy, drawing, size));
    Object.assign(last, { clientX: event.clientX, clientY: event.clientY });
  };
  const onPointerEnd = (event) => pointers.current.delete(event.pointerId);
  /** A drag that ends on an agent doesn't open it. */
  const onClickCapture = (event) => {
    if (!dragged.current) return;
    dragged.current = false;
    event.stopPropagation();
    event.preventDefault();
  };
  return { onPointerDown, onPointerMove, onPointerUp: onPointerEnd, onPointerCancel: onPointerEnd, onClickCapture };
}

/** What an agent does now: `{text, since}`, or null. */
function workOf(session, id) {
  if (!session || session.at !== null) return null;
  const live = session.live.of(id);
  if (live) {
    const [task] = [...live.work.values()].slice(-1);
    return { text: task ? shortName(task.name) : "working", since: task?.since ?? live.since };
  }
  const known = session.record?.working?.find(({ agent }) => agentOf(agent) === id);
  return known ? { text: "working", since: Date.parse(known.since) } : null;
}

/** The last line of an agent's node: its tools or, in a task, the room for the number of its mails. */
const detailOf = ({ kind, agent }, isTask) =>
  isTask ? (kind === "caller" ? "" : "99 in · 99 out") : agent ? toolNote(agent) : "";

/** The longest that usually stands below an agent's name while it works. */
const reserveOf = ({ agent }) => (agent ? `${modelOf(agent) || "working"}  59 min 59 s` : "");

function Working({ text, since, width }) {
  const now = useClock(1);
  const time = formatElapsed(since, Math.max(now, serverNow()));
  let name = text;
  while (name.length > 3 && measure(`${name}… ${time}`) * SMALL > width - 2 * NODE.padding) name = name.slice(0, -1);
  return html`
    <tspan>${name === text ? text : `${name}…`}</tspan>
    <tspan dx="5" class="node-time">${time}</tspan>
  `;
}

/** What a screen reader says of an agent after its name and note. */
function describe(node, graph) {
  const links = neighbours(graph, node.id);
  const [writes, reads] = ["writes", "reads"].map((key) => links.filter((link) => link[key]).length);
  return [
    node.kind === "remote" && `in swarm ${node.swarm}`,
    writes && `writes to ${plural(writes, "agent")}`,
    reads && `gets mail from ${plural(reads, "agent")}`,
  ]
    .filter(Boolean)
    .join(", ");
}

function Node({ box, node, graph, work, detail, tone, isSelected, isStop, onOpen, onFocus, onHover }) {
  const notes = [
    (node.note || work) && (work ? html`<${Working} ...${work} width=${box.width} />` : node.note),
    detail,
  ].filter(Boolean);
  const first = (box.height - box.lines.length * 18 - notes.length * NODE.detail) / 2 + 14;
  const classes = [
    "node",
    `node-${node.kind}`,
    tone,
    work && "is-working",
    isSelected && "is-selected",
    node.id === graph.entrypoint && "is-entrypoint",
    node.agent?.can_complete_tasks && "is-supervisor",
  ];
  const onKeyDown = (event) => {
    if (event.key !== "Enter" && event.key !== " ") return;
    event.preventDefault();
    onOpen(node.id);
  };
  return html`
    <g
      class=${classes.filter(Boolean).join(" ")}
      transform=${`translate(${box.x} ${box.y})`}
      data-id=${node.id}
      role="button"
      tabindex=${isStop ? 0 : -1}
      aria-pressed=${String(Boolean(isSelected))}
      aria-description=${describe(node, graph)}
      onClick=${() => onOpen(node.id)}
      onKeyDown=${onKeyDown}
      onFocus=${() => onFocus(node.id)}
      onBlur=${() => onFocus(null)}
      onPointerEnter=${() => onHover(node.id)}
      onPointerLeave=${() => onHover(null)}>
      ${work && html`<rect class="node-halo" x="-4" y="-4" width=${box.width + 8} height=${box.height + 8} rx="13" />`}
      <rect class="node-box" width=${box.width} height=${box.height} rx="9" />
      <rect
        class=${`node-bar ${node.kind === "agent" ? `hue-${hueOf(node.id)}` : ""}`}
        width="4"
        height=${box.height - 16}
        x="6"
        y="8"
        rx="2" />
      ${box.lines.map(
        (line, index) => html`<text class="node-name" x=${box.width / 2 + 4} y=${first + index * 18}>${line}</text>`,
      )}
      ${notes.map(
        (note, index) => html`
          ${" "}
          <text
            class=${work && !index ? "node-note node-work" : "node-note"}
            x=${box.width / 2 + 4}
            y=${first + box.lines.length * 18 - 1 + index * NODE.detail}>
            ${note}
          </text>
        `,
      )}
    </g>
  `;
}

/** What an agent has got and sent; "" if nothing. */
function countsOf(activity, id) {
  const history = activity.agents.get(id);
  return history && (history.received || history.sent) ? mailNote(history) : "";
}

function Edge({ edge, traffic, tone }) {
  const classes = ["edge", edge.isDeclared ? "" : "is-undeclared", traffic ? "has-mail" : "", tone];
  return html`
    <g class=${classes.filter(Boolean).join(" ")}>
      <path class="edge-line" d=${edge.path} />
      ${edge.arrows.map(
        ({ x, y, angle }) => html`
          <path class="edge-arrow" d="M0,0 L-8,-4 L-8,4 z" transform=${`translate(${x} ${y}) rotate(${angle})`} />
        `,
      )}
    </g>
  `;
}

/** How many messages went over an edge and, if there were some in both directions, how many in each. */
function Count({ edge, traffic, tone }) {
  const [forth, back] = traffic.from === edge.from ? [traffic.forth, traffic.back] : [traffic.back, traffic.forth];
  const text = forth && back ? `${forth}⇄${back}` : String(traffic.count);
  const width = 12 + text.length * 7;
  return html`
    <g class=${`edge-count ${tone}`} transform=${`translate(${edge.label.x} ${edge.label.y})`}>
      <rect x=${-width / 2} y="-9" width=${width} height="18" rx="9" />
      <text y="4">${text}</text>
    </g>
  `;
}

/**
 * The graph; `onAgent` gets the id of an agent that the reader opens, `selected` is the one that is open.
 *
 * In a task, `activity` is what its agents have done (see activity.js), and `caller` the name of the task's caller.
 */
export function SwarmGraph({ swarm, session, activity, caller, selected, onAgent = () => {} }) {
  const [pane, size] = useSize();
  const mail = activity?.mail ?? [];
  const graph = useMemo(() => {
    const made = graphOf(swarm, mail, caller);
    return {
      ...made,
      entrypoint: swarm.entrypoint,
      nodes: made.nodes.map((node) => ({
        ...node,
        note: noteOf(node, swarm.entrypoint),
        reserve: session ? reserveOf(node) : "",
        detail: detailOf(node, Boolean(session)),
      })),
    };
  }, [swarm, caller, activity, mail.length, Boolean(session)]);
  const drawing = useLayout(graph, size);
  const [view, move, reset] = useView(drawing, size, graph.entrypoint);
  const pointers = usePointers(move, drawing, size);
  const [stop, setStop] = useState(null);
  const [hovered, setHovered] = useState(null);
  const [focused, setFocused] = useState(null);

  const middle = () => ({ x: size.width / 2, y: size.height / 2 });
  const boxes = new Map(drawing?.nodes.map((box) => [box.id, box]));
  const onFocus = (id) => {
    setFocused(id);
    if (id === null) return;
    setStop(id);
    const box = boxes.get(id);
    const shown = reveal(view, box, size);
    if (shown.x !== view.x || shown.y !== view.y) move((now) => reveal(now, box, size));
  };
  // An agent that is opened stays in sight, though the pane becomes smaller.
  useLayoutEffect(() => {
    if (drawing && boxes.has(selected)) move((now) => reveal(now, boxes.get(selected), size), { isReader: false });
  }, [selected, size]);
  // The pane is scrolled by its view alone; a browser that reveals the focus by itself would shift it twice.
  useEffect(() => {
    const element = pane.current;
    const onScroll = () => element.scrollTo(0, 0);
    element.addEventListener("scroll", onScroll);
    return () => element.removeEventListener("scroll", onScroll);
  }, []);

  const onKeyDown = (event) => {
    if (!drawing || event.ctrlKey || event.metaKey || event.altKey) return;
    const id = event.target.dataset?.id;
    if (event.key === "+" || event.key === "=") move((now) => zoom(now, BUTTON_ZOOM, middle()));
    else if (event.key === "-") move((now) => zoom(now, 1 / BUTTON_ZOOM, middle()));
    else if (event.key === "0") reset();
    else if (id && (event.key === "Home" || event.key === "End"))
      focusNode(event.key === "Home" ? graph.root : drawing.nodes.at(-1).id);
    else if (id && !event.shiftKey) {
      const linked = new Set(neighbours(graph, id).map((link) => link.id));
      const next = nextNode(event.key, boxes.get(id), drawing.nodes, linked);
      if (!stepOf(event.key)) return;
      if (next) focusNode(next);
    } else if (stepOf(event.key)) move((now) => pan(now, ...stepOf(event.key), drawing, size));
    else return;
    event.preventDefault();
  };
  const focusNode = (id) => pane.current.querySelector(`[data-id="${CSS.escape(id)}"]`)?.focus({ preventScroll: true });
  const onWheel = (event) => {
    if (!drawing) return;
    const box = pane.current.getBoundingClientRect();
    if (event.ctrlKey || event.metaKey) {
      event.preventDefault();
      return void move((now) =>
        zoom(now, Math.exp(-event.deltaY / 200), { x: event.clientX - box.x, y: event.clientY - box.y }),
      );
    }
    // Where the page scrolls, the wheel is the page's.
    const isLarger = drawing.width * view.scale > size.width || drawing.height * view.scale > size.height;
    if (!isLarger || document.documentElement.scrollHeight > window.innerHeight) return;
    event.preventDefault();
    const lines = event.deltaMode === 1 ? 16 : 1;
    const [dx, dy] = event.shiftKey ? [event.deltaY, event.deltaX] : [event.deltaX, event.deltaY];
    move((now) => pan(now, -dx * lines, -dy * lines, drawing, size));
  };

  const active = hovered ?? focused ?? selected;
  const near = active && boxes.has(active) ? new Set([active, ...neighbours(graph, active).map(({ id }) => id)]) : null;
  const last = new Set(activity?.last);
  const toneOf = (edge) =>
    [near && (edge.from === active || edge.to === active ? "is-near" : "is-far"), last.has(edge.key) && "is-last"]
      .filter(Boolean)
      .join(" ");
  const firstStop = boxes.has(stop) ? stop : graph.root;
  const nodes = new Map(graph.nodes.map((node) => [node.id, node]));
  const isLast = ({ key }) => last.has(key);
  const edges = drawing ? [...drawing.edges].sort((a, b) => isLast(a) - isLast(b)) : [];
  // The order of the Tab key and of screen readers: by rank, then along it.
  const inOrder = drawing
    ? [...drawing.nodes].sort((a, b) => (drawing.isAcross ? a.x - b.x || a.y - b.y : a.y - b.y || a.x - b.x))
    : [];
  const sign = (width, height, ...children) => html`
    <svg width=${width} height=${height} aria-hidden="true">${children}</svg>
  `;
  const arrow = html`<path class="legend-arrow" d="M29,5 l-8,-4 v8 z" />`;
  const legend = [
    [drawing?.edges.length, sign(30, 10, html`<path class="legend-line" d="M1,5 H22" />`, arrow), "may write to"],
    [
      drawing?.groups.length,
      sign(22, 14, html`<rect class="legend-swarm" x="1" y="1" width="20" height="12" rx="4" />`),
      "another swarm",
    ],
    [activity?.edges.size, html`<span class="legend-count" aria-hidden="true">3⇄2</span>`, "messages each way"],
    [last.size, sign(24, 10, html`<path class="legend-last" d="M1,5 H23" />`), "latest message"],
  ];
  return html`
    <div class="graph">
      <div
        class="graph-pane"
        ref=${pane}
        tabindex="0"
        role="group"
        aria-label=${`Graph of ${swarm.name}: arrow keys move it, plus and minus zoom`}
        onKeyDown=${onKeyDown}
        onWheel=${onWheel}
        ...${pointers}>
        ${
          drawing &&
          html`
            <svg
              class="graph-drawing"
              width="100%"
              height="100%"
              role="group"
              aria-label=${`Agents of ${swarm.name}: arrow keys lead from agent to agent, Enter opens one`}>
              <g transform=${`translate(${view.x} ${view.y}) scale(${view.scale})`}>
                ${drawing.groups.map(
                  (group) => html`
                    <g key=${group.swarm} class="group" transform=${`translate(${group.x} ${group.y})`}>
                      <rect width=${group.width} height=${group.height} rx="12" />
                      <text x="12" y="18">${group.swarm}</text>
                    </g>
                  `,
                )}
                <g aria-hidden="true">
                  ${edges.map(
                    (edge) => html`
                      <${Edge}
                        key=${edge.key}
                        edge=${edge}
                        traffic=${activity?.edges.get(edge.key)}
                        tone=${toneOf(edge)} />
                    `,
                  )}
                </g>
                ${inOrder.map(
                  (box) => html`
                    <${Node}
                      key=${box.id}
                      box=${box}
                      node=${nodes.get(box.id)}
                      graph=${graph}
                      work=${workOf(session, box.id)}
                      detail=${activity ? countsOf(activity, box.id) : nodes.get(box.id).detail}
                      tone=${near && !near.has(box.id) ? "is-far" : ""}
                      isSelected=${box.id === selected}
                      isStop=${box.id === firstStop}
                      onOpen=${onAgent}
                      onFocus=${onFocus}
                      onHover=${setHovered} />
                  `,
                )}
                <g aria-hidden="true">
                  ${edges.map(
                    (edge) =>
                      activity?.edges.has(edge.key) &&
                      html`
                        <${Count}
                          key=${edge.key}
                          edge=${edge}
                          traffic=${activity.edges.get(edge.key)}
                          tone=${toneOf(edge)} />
                      `,
                  )}
                </g>
              </g>
            </svg>
          `
        }
      </div>
      <div class="graph-foot">
        <p class="graph-legend">
          ${legend
            .filter(([isThere]) => isThere)
            .map(
              ([, sign, words]) => html`
                <span key=${words}>
                  ${sign}
                  ${words}
                </span>
              `,
            )}
        </p>
        <div class="graph-tools" role="toolbar" aria-label="Zoom">
          <${IconButton}
            icon="zoom_out"
            label="Zoom out"
            onClick=${() => move((now) => zoom(now, 1 / BUTTON_ZOOM, middle()))} />
          <output class="graph-scale" aria-label="Zoom">${Math.round(view.scale * 100)}%</output>
          <${IconButton}
            icon="zoom_in"
            label="Zoom in"
            onClick=${() => move((now) => zoom(now, BUTTON_ZOOM, middle()))} />
          <${IconButton} icon="fit" label="Show the whole graph" onClick=${reset} />
        </div>
      </div>
    </div>
  `;
}
