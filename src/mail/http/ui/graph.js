// The agents as a graph: who may write to whom, in layers below the entrypoint.

import { svg } from "./dom.js";

const NODE = { width: 116, height: 40 };
const GAP = { x: 28, y: 56 };
const LETTERS = 14;

/** Agents in layers by how many messages the entrypoint is away; the remote ones among them, the unreachable ones last. */
export function layers(swarm) {
  const targets = new Map(swarm.agents.map((agent) => [agent.name, agent.comm_targets]));
  const seen = new Set([swarm.entrypoint]);
  const rows = [[swarm.entrypoint]];
  for (;;) {
    const next = rows.at(-1).flatMap((name) => targets.get(name) ?? []).filter((name) => !seen.has(name) && seen.add(name));
    if (!next.length) break;
    rows.push(next);
  }
  const lost = [...targets.keys()].filter((name) => !seen.has(name));
  return lost.length ? [...rows, lost] : rows;
}

/** Pairs that may write to each other, once: `{from, to, both}`. */
export function edges(swarm) {
  const all = swarm.agents.flatMap((agent) => agent.comm_targets.map((target) => [agent.name, target]));
  const has = new Set(all.map((pair) => JSON.stringify(pair)));
  return all
    .map(([from, to]) => ({ from, to, both: has.has(JSON.stringify([to, from])) }))
    .filter(({ from, to, both }) => !both || from <= to);
}

const cut = (name) => (name.length > LETTERS ? `${name.slice(0, LETTERS - 1)}…` : name);

/** Where a line from the middle of `box` towards `point` leaves the box. */
function border(box, point) {
  const [dx, dy] = [point.x - box.x, point.y - box.y];
  const scale = Math.min(
    dx ? (NODE.width / 2 + 3) / Math.abs(dx) : Infinity,
    dy ? (NODE.height / 2 + 3) / Math.abs(dy) : Infinity,
  );
  return { x: box.x + dx * scale, y: box.y + dy * scale };
}

function line({ from, to, both }, places) {
  const [a, b] = [places.get(from), places.get(to)];
  if (!a || !b || from === to) return null;
  // Straight between neighbouring rows; else a curve, which goes around what lies between.
  const bend = Math.abs(a.row - b.row) === 1 ? 0 : a.row === b.row ? NODE.height * 1.3 : NODE.width * 0.7;
  const middle = { x: (a.x + b.x) / 2, y: (a.y + b.y) / 2 };
  if (a.row === b.row) middle.y += bend;
  else middle.x += bend;
  const [start, end] = [border(a, middle), border(b, middle)];
  return svg("path", {
    class: "edge",
    d: `M${start.x},${start.y} Q${middle.x},${middle.y} ${end.x},${end.y}`,
    "marker-end": "url(#arrow)",
    "marker-start": both ? "url(#arrow)" : null,
  });
}

/** Draws the swarm; `flash(who, whom)` shows that a message goes from one to others. */
export function drawGraph(swarm) {
  const rows = layers(swarm);
  const columns = Math.max(...rows.map((row) => row.length));
  const width = columns * (NODE.width + GAP.x) + GAP.x;
  const height = rows.length * (NODE.height + GAP.y) - GAP.y + 48;
  const places = new Map();
  rows.forEach((row, y) =>
    row.forEach((name, x) =>
      places.set(name, {
        row: y,
        x: (width * (x + 0.5)) / row.length,
        y: 24 + NODE.height / 2 + y * (NODE.height + GAP.y),
      }),
    ),
  );
  const agents = new Map(swarm.agents.map((agent) => [agent.name, agent]));
  const nodes = new Map();
  for (const [name, { x, y }] of places) {
    const agent = agents.get(name);
    const kind = !agent ? "remote" : agent.can_complete_tasks ? "supervisor" : "worker";
    const role = !agent ? "other swarm" : name === swarm.entrypoint ? "entrypoint" : kind;
    nodes.set(
      name,
      svg(
        "g",
        { class: `node ${kind}`, transform: `translate(${x} ${y})` },
        svg("title", {}, name),
        svg("rect", { x: -NODE.width / 2, y: -NODE.height / 2, width: NODE.width, height: NODE.height, rx: 10 }),
        svg("text", { y: -2 }, cut(name)),
        svg("text", { y: 13, class: "role" }, role),
      ),
    );
  }
  const arrow = svg(
    "marker",
    { id: "arrow", viewBox: "0 0 8 8", refX: 7, refY: 4, markerWidth: 7, markerHeight: 7, orient: "auto-start-reverse" },
    svg("path", { d: "M0,0 L8,4 L0,8 z" }),
  );
  const drawing = svg(
    "svg",
    { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": `Who writes to whom in ${swarm.name}` },
    svg("defs", {}, arrow),
    edges(swarm).map((edge) => line(edge, places)),
    [...nodes.values()],
  );
  drawing.style.maxWidth = `${width * 1.2}px`;
  function flash(...names) {
    for (const name of names) {
      const node = nodes.get(name);
      if (!node) continue;
      node.classList.remove("active");
      void node.getBoundingClientRect(); // restart the animation
      node.classList.add("active");
    }
  }
  return { drawing, flash };
}
