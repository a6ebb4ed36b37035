// The positions of a graph's nodes and edges. dagre orders the nodes and routes the edges; this module decides the
// ranks, so that a long rank becomes several, and the layout fits the shape of the window. No page here: node tests
// run it.

import { Graph, layout as place } from "../vendor/dagre.js";

export const NODE = { height: 46, padding: 14, line: 18, detail: 16, minWidth: 112 };
const GAP = { nodes: 14, edges: 6, ranks: 92, columns: 44 };
const PORT = { gap: 9, most: 190 };
const GROUP = { head: 26, padding: 10, gap: 8 };
const LETTERS = 26;
const MOST_SPLITS = 8;
const MARGIN = 16;

/** The size of notes, by that of names. */
export const SMALL = 0.86;

/** The width of a text on a page with 14 px system fonts, estimated. */
export const estimate = (text) =>
  [...text].reduce(
    (sum, letter) => sum + (/[\u1100-\uffff]/u.test(letter) ? 15 : /[A-Zmw@]/.test(letter) ? 11 : 8.2),
    0,
  );

/** A name in lines: whole, broken after separators if it is long. */
export function linesOf(name) {
  const lines = [""];
  for (const part of name.split(/(?<=[-_.:\s/])|(?<=[a-z])(?=[A-Z])/)) {
    for (let rest = part; rest;) {
      const last = lines.at(-1);
      if (last.length + rest.length <= LETTERS) {
        lines[lines.length - 1] += rest;
        break;
      }
      if (last) lines.push("");
      else {
        lines[lines.length - 1] = rest.slice(0, LETTERS);
        rest = rest.slice(LETTERS);
        if (rest) lines.push("");
      }
    }
  }
  return lines.map((line) => line.trim()).filter(Boolean);
}

/**
 * How many messages each node is away from the root; nodes that it can't reach come after those that write to them or
 * read them.
 */
function depthsOf({ root, nodes, edges }) {
  const next = new Map(nodes.map(({ id }) => [id, []]));
  const any = new Map(nodes.map(({ id }) => [id, []]));
  for (const { from, to, both } of edges) {
    next.get(from).push(to);
    if (both) next.get(to).push(from);
    any.get(from).push(to);
    any.get(to).push(from);
  }
  const depths = new Map();
  const walk = (start, depth, links) => {
    depths.set(start, depth);
    const queue = [start];
    for (const id of queue)
      for (const other of links.get(id))
        if (!depths.has(other)) {
          depths.set(other, depths.get(id) + 1);
          queue.push(other);
        }
  };
  if (next.has(root)) walk(root, 0, next);
  for (const { id } of nodes) {
    if (depths.has(id)) continue;
    const known = any.get(id).filter((other) => depths.has(other));
    if (known.length) walk(id, Math.min(...known.map((other) => depths.get(other))) + 1, any);
  }
  const last = Math.max(0, ...depths.values());
  for (const { id } of nodes) if (!depths.has(id)) walk(id, any.get(id).length ? last + 1 : last || 1, any);
  return depths;
}

/** The boxes that are placed: agents, and one for all agents of another swarm. `size` is `[width, height]`. */
function boxesOf({ nodes, edges }, depths, isAcross, measure) {
  const degrees = new Map();
  for (const { from, to } of edges) for (const id of [from, to]) degrees.set(id, (degrees.get(id) ?? 0) + 1);
  const boxes = new Map();
  for (const node of nodes) {
    const lines = linesOf(node.name);
    const width = Math.max(
      NODE.minWidth,
      Math.ceil(
        Math.max(
          ...lines.map(measure),
          measure(node.note ?? "") * SMALL,
          measure(node.reserve ?? "") * SMALL,
          measure(node.detail ?? "") * SMALL,
        ),
      ) +
        2 * NODE.padding,
    );
    const item = {
      id: node.id,
      lines,
      width,
      height: NODE.height + (lines.length - 1) * NODE.line + (node.detail ? NODE.detail : 0),
    };
    const ports = Math.min(PORT.most, ((degrees.get(node.id) ?? 0) + 1) * PORT.gap);
    const key = node.kind === "remote" ? `swarm:${node.swarm}` : node.id;
    const box = boxes.get(key);
    if (box) {
      box.items.push(item);
      box.depth = Math.min(box.depth, depths.get(node.id));
    } else
      boxes.set(key, {
        key,
        swarm: node.kind === "remote" ? node.swarm : null,
        items: [item],
        depth: depths.get(node.id),
        ports,
      });
  }
  for (const box of boxes.values()) {
    if (box.swarm === null) {
      const [item] = box.items;
      if (isAcross) item.height = Math.max(item.height, box.ports);
      else item.width = Math.max(item.width, box.ports);
      [box.width, box.height] = [item.width, item.height];
      continue;
    }
    const [sum, most] = [
      (key) => box.items.reduce((total, item) => total + item[key] + GROUP.gap, -GROUP.gap),
      (key) => Math.max(...box.items.map((item) => item[key])),
    ];
    const inside = isAcross ? [most("width"), sum("height")] : [sum("width"), most("height")];
    box.width = Math.max(inside[0], measure(box.swarm) + 24) + 2 * GROUP.padding;
    box.height = inside[1] + GROUP.head + GROUP.padding;
  }
  for (const box of boxes.values())
    [box.uSize, box.vSize] = isAcross ? [box.height, box.width] : [box.width, box.height];
  return boxes;
}

/** The order of the boxes of each depth, and where they would stand across it, by dagre. */
function order(graph, boxes, boxOf) {
  const depthOf = (key) => boxes.get(key).depth;
  const dagre = new Graph().setGraph({ rankdir: "TB", nodesep: GAP.nodes, edgesep: GAP.edges });
  for (const box of boxes.values()) dagre.setNode(box.key, { width: box.uSize, height: box.vSize });
  const link = (one, two, weight) => {
    const [from, to] = depthOf(one) < depthOf(two) ? [one, two] : [two, one];
    if (depthOf(from) < depthOf(to))
      dagre.setEdge(from, to, { minlen: depthOf(to) - depthOf(from), weight, labelpos: "c" });
  };
  for (const { from, to } of graph.edges) link(boxOf.get(from), boxOf.get(to), 2);
  // dagre ranks by edges alone, so what has none is tied to the first box.
  const first = [...boxes.values()].reduce((best, box) => (box.depth < best.depth ? box : best)).key;
  const seen = new Set();
  const reach = (start) => {
    const queue = [start];
    for (const key of queue) {
      if (seen.has(key)) continue;
      seen.add(key);
      queue.push(...dagre.neighbors(key));
    }
  };
  reach(first);
  for (const key of boxes.keys()) {
    if (seen.has(key)) continue;
    link(first, key, 1);
    reach(key);
  }
  place(dagre);
  // dagre doesn't care which end is the first: the agents that the swarm names first are.
  const [all, wishes] = [[...boxes.values()], [...boxes.values()].map(({ key }) => dagre.node(key).x)];
  const middle = wishes.reduce((a, b) => a + b, 0) / wishes.length;
  const isReversed =
    wishes.reduce((sum, wish, index) => sum + (wish - middle) * (index - (wishes.length - 1) / 2), 0) < 0;
  all.forEach((box, index) => (box.wish = isReversed ? -wishes[index] : wishes[index]));
}

/** Ranks of at most `room` boxes: a depth with more of them takes several ranks. */
function ranksOf(boxes, room) {
  const byDepth = new Map();
  for (const box of boxes.values()) byDepth.set(box.depth, [...(byDepth.get(box.depth) ?? []), box]);
  const ranks = [];
  for (const depth of [...byDepth.keys()].sort((a, b) => a - b)) {
    const row = byDepth.get(depth).sort((a, b) => a.wish - b.wish);
    const parts = Math.ceil(row.length / room);
    // One after the other, so that the agents of a team, which are neighbours, stay at one height.
    for (let part = 0; part < parts; part++)
      ranks.push({ depth, parts, boxes: row.filter((_, index) => index % parts === part) });
  }
  return ranks;
}

/** Centres as near to the wishes as the order and the `gaps` between boxes allow (isotonic regression). */
function spread(wishes, sizes, gaps) {
  const offsets = [0];
  for (let i = 1; i < wishes.length; i++) offsets.push(offsets[i - 1] + (sizes[i - 1] + sizes[i]) / 2 + gaps[i]);
  const blocks = [];
  wishes.forEach((wish, i) => {
    let block = { sum: wish - offsets[i], count: 1 };
    while (blocks.length && blocks.at(-1).sum / blocks.at(-1).count > block.sum / block.count) {
      const last = blocks.pop();
      block = { sum: last.sum + block.sum, count: last.count + block.count };
    }
    blocks.push(block);
  });
  return blocks.flatMap(({ sum, count }) => Array(count).fill(sum / count)).map((base, i) => base + offsets[i]);
}

/**
 * A plan: the boxes of all ranks with their `u` and `v`, and for each edge between ranks a lane through each rank
 * that it passes.
 */
function arrange(graph, { boxes, boxOf }, room) {
  const ranks = ranksOf(boxes, room);
  const rankOf = new Map(ranks.flatMap((rank, index) => rank.boxes.map((box) => [box.key, index])));
  const squeeze = Math.max(...ranks.map(({ parts }) => parts));
  let v = 0;
  ranks.forEach((rank, index) => {
    rank.breadth = Math.max(...rank.boxes.map((box) => box.vSize));
    if (index) v += ranks[index - 1].depth === rank.depth ? GAP.columns : GAP.ranks;
    rank.begin = v;
    rank.end = v += rank.breadth;
    rank.gaps = Array(rank.boxes.length + 1).fill(GAP.nodes);
  });
  const position = (stretch) => {
    for (const rank of ranks) {
      const centres = spread(
        rank.boxes.map((box) => (box.wish * stretch) / squeeze),
        rank.boxes.map((box) => box.uSize),
        rank.gaps,
      );
      rank.boxes.forEach((box, index) => (box.u = centres[index]));
    }
  };
  const longest = () => Math.max(...ranks.map(({ boxes: [first, ...rest] }) => (rest.at(-1) ?? first).u - first.u));
  position(1);
  const before = longest();
  const passages = passagesOf(graph.edges, boxes, boxOf, ranks, rankOf);
  // Where edges pass between two boxes, these move apart, and the other ranks with them.
  position(1);
  if (squeeze > 1 && before > 0) position(Math.max(1, longest() / before));
  const lanes = lanesOf(passages, ranks);
  const us = [...boxes.values()]
    .flatMap((box) => [box.u - box.uSize / 2, box.u + box.uSize / 2])
    .concat([...lanes.values()].flat().map((lane) => lane.u));
  const low = us.reduce((a, b) => Math.min(a, b));
  return { ranks, rankOf, lanes, low, uSize: us.reduce((a, b) => Math.max(a, b)) - low, vSize: v };
}

/** The gaps through which edges pass the ranks between their ends; gaps become as wide as their edges need. */
function passagesOf(edges, boxes, boxOf, ranks, rankOf) {
  const passages = new Map();
  for (const edge of edges) {
    const [start, end] = [boxOf.get(edge.from), boxOf.get(edge.to)]
      .sort((a, b) => rankOf.get(a) - rankOf.get(b))
      .map((key) => boxes.get(key));
    const [low, high] = [rankOf.get(start.key), rankOf.get(end.key)];
    for (let index = low + 1; index < high; index++) {
      const rank = ranks[index];
      const share = rank.depth === end.depth ? 1 : rank.depth === start.depth ? 0 : (index - low) / (high - low);
      const wish = start.u + (end.u - start.u) * share;
      let gap = rank.boxes.findIndex((box) => box.u > wish);
      if (gap < 0) gap = rank.boxes.length;
      const key = JSON.stringify([index, gap]);
      passages.set(key, [...(passages.get(key) ?? []), { edge: edge.key, index, gap, wish }]);
    }
  }
  for (const passing of passages.values()) {
    passing.sort((a, b) => a.wish - b.wish);
    const [{ index, gap }] = passing;
    ranks[index].gaps[gap] = Math.max(GAP.nodes, (passing.length + 1) * GAP.edges);
  }
  return passages;
}

/** The lanes of each edge by its key, in the order of the ranks. */
function lanesOf(passages, ranks) {
  const lanes = new Map();
  for (const passing of passages.values()) {
    const [{ index, gap }] = passing;
    const rank = ranks[index];
    const [above, below] = [rank.boxes[gap - 1], rank.boxes[gap]];
    const from = above ? above.u + above.uSize / 2 : below.u - below.uSize / 2 - (passing.length + 1) * GAP.edges;
    const to = below ? below.u - below.uSize / 2 : above.u + above.uSize / 2 + (passing.length + 1) * GAP.edges;
    passing.forEach(({ edge }, i) => {
      const step = Math.min((to - from) / (passing.length + 1), 2 * GAP.edges);
      const first = (from + to) / 2 - (step * (passing.length - 1)) / 2;
      lanes.set(edge, [...(lanes.get(edge) ?? []), { index, u: first + i * step, begin: rank.begin, end: rank.end }]);
    });
  }
  for (const list of lanes.values()) list.sort((a, b) => a.index - b.index);
  return lanes;
}

/** The plan that can be shown largest; of those that are about as large, the one with the fewest ranks. */
function bestPlan(graph, width, height, measure) {
  const depths = depthsOf(graph);
  let best = null;
  for (const isAcross of [true, false]) {
    const boxes = boxesOf(graph, depths, isAcross, measure);
    const boxOf = new Map([...boxes.values()].flatMap((box) => box.items.map((item) => [item.id, box.key])));
    order(graph, boxes, boxOf);
    const counts = new Map();
    for (const { depth } of boxes.values()) counts.set(depth, (counts.get(depth) ?? 0) + 1);
    const most = Math.max(...counts.values());
    const rooms = new Set(Array.from({ length: MOST_SPLITS }, (_, index) => Math.ceil(most / (index + 1))));
    let splits = 0;
    for (const room of rooms) {
      const plan = arrange(graph, { boxes, boxOf }, room);
      const [w, h] = isAcross ? [plan.vSize, plan.uSize] : [plan.uSize, plan.vSize];
      const scale = Math.min(1, width / (w + 2 * MARGIN), height / (h + 2 * MARGIN));
      const score = scale - 0.02 * splits++ - (isAcross ? 0 : 0.03);
      if (!best || score > best.score) best = { isAcross, boxes, boxOf, room, score };
    }
  }
  return { ...best, ...arrange(graph, best, best.room) };
}

/**
 * Positions for a window of `width` and `height`: `{width, height, nodes, groups, edges}`. Nodes and groups have `x`,
 * `y` (of their upper left corner), `width` and `height`, nodes the `lines` of their name; edges have a `path`,
 * `arrows` (`{x, y, angle}`) and the place of a `label`.
 *
 * A node may have a `note`, a second line that must fit as well, and a `reserve`, which may take its place.
 */
export function layout(graph, { width = 1000, height = 700, measure = estimate } = {}) {
  const { isAcross, boxOf, ranks, rankOf, lanes, low } = bestPlan(graph, width, height, measure);
  const items = new Map();
  const groups = [];
  for (const rank of ranks) for (const box of rank.boxes) placeItems(box, rank, isAcross, items, groups);
  const routes = graph.edges.map((edge) => route(edge, { boxOf, rankOf, lanes, ranks, items }));
  spreadPorts(routes, items);

  // Up to here, `u` runs along a rank and `v` from rank to rank; mail flows to the right, or down.
  const flip = ({ u, v }) =>
    isAcross ? { x: v + MARGIN, y: u - low + MARGIN } : { x: u - low + MARGIN, y: v + MARGIN };
  const rectangle = ({ u, v, uSize, vSize }) => ({
    ...flip({ u, v }),
    ...(isAcross ? { width: vSize, height: uSize } : { width: uSize, height: vSize }),
  });
  return {
    ...extent([...items.values(), ...groups], routes, flip),
    isAcross,
    nodes: [...items.values()].map((item) => ({ id: item.id, lines: item.lines, ...rectangle(item) })),
    groups: groups.map((group) => ({ swarm: group.swarm, ...rectangle(group) })),
    edges: routes.map((one) => ({ ...one.edge, ...drawn(one, flip, isAcross) })),
  };
}

/** Puts the agents of a box where the box is. */
function placeItems(box, rank, isAcross, items, groups) {
  // In a column, all agents are as wide as the column.
  const isWide = isAcross && box.swarm === null;
  const { uSize } = box;
  const vSize = isWide ? rank.breadth : box.vSize;
  const corner = { u: box.u - uSize / 2, v: isAcross ? rank.begin : (rank.begin + rank.end - vSize) / 2 };
  if (box.swarm === null) {
    items.set(box.items[0].id, { ...box.items[0], ...corner, uSize, vSize });
    return;
  }
  groups.push({ swarm: box.swarm, ...corner, uSize, vSize });
  let at = corner.u + (isAcross ? GROUP.head : GROUP.padding);
  for (const item of box.items) {
    const size = isAcross ? item.height : item.width;
    const [depth, start] = isAcross
      ? [vSize - 2 * GROUP.padding, corner.v + GROUP.padding]
      : [item.height, corner.v + GROUP.head];
    items.set(item.id, { ...item, u: at, v: start, uSize: size, vSize: depth });
    at += size + GROUP.gap;
  }
}

/** Where an edge goes: from the lower rank to the higher one. */
function route(edge, { boxOf, rankOf, lanes, ranks, items }) {
  const [a, b] = [rankOf.get(boxOf.get(edge.from)), rankOf.get(boxOf.get(edge.to))];
  const isForward = a <= b;
  const [start, end] = isForward ? [edge.from, edge.to] : [edge.to, edge.from];
  return {
    edge,
    start,
    end,
    isForward,
    isPeer: a === b,
    rank: ranks[Math.min(a, b)],
    lanes: lanes.get(edge.key) ?? [],
    items,
  };
}

/** Where edges touch their nodes: side by side, in the order of where they lead. */
function spreadPorts(routes, items) {
  const sides = new Map();
  const put = (id, side, one, key, towards) => {
    const name = JSON.stringify([id, side]);
    sides.set(name, [...(sides.get(name) ?? []), { one, key, towards, id, side }]);
  };
  const middle = (id) => items.get(id).u + items.get(id).uSize / 2;
  for (const one of routes) {
    const isBeside = one.isPeer && isAdjacent(one, items);
    if (isBeside) continue;
    put(one.start, "end", one, "out", one.lanes[0]?.u ?? middle(one.end));
    put(one.end, one.isPeer ? "end" : "begin", one, "into", one.lanes.at(-1)?.u ?? middle(one.start));
  }
  for (const ports of sides.values()) {
    ports.sort((one, two) => one.towards - two.towards);
    const item = items.get(ports[0].id);
    const gap = Math.min(PORT.gap * 1.6, (item.uSize - 16) / Math.max(1, ports.length - 1));
    const first = item.u + item.uSize / 2 - (gap * (ports.length - 1)) / 2;
    ports.forEach(
      ({ one, key, side }, index) =>
        (one[key] = { u: first + index * gap, v: side === "end" ? item.v + item.vSize : item.v }),
    );
  }
}

/** Whether nothing lies between two nodes of a rank. */
function isAdjacent(one, items) {
  const [a, b] = [items.get(one.start), items.get(one.end)].sort((first, second) => first.u - second.u);
  const [from, to] = [a.u + a.uSize, b.u];
  for (const item of items.values()) {
    const isInColumn = item.v < one.rank.end && item.v + item.vSize > one.rank.begin;
    if (isInColumn && item.u >= from - 1 && item.u + item.uSize <= to + 1) return false;
  }
  return true;
}

/** The path of an edge, with the places of its arrows and its label. */
function drawn(one, flip, isAcross) {
  const at = (u, v) => {
    const { x, y } = flip({ u, v });
    return `${round(x)},${round(y)}`;
  };
  const { both } = one.edge;
  const arrow = (u, v, du, dv) => {
    const tip = flip({ u, v });
    const [dx, dy] = isAcross ? [dv, du] : [du, dv];
    return { x: round(tip.x), y: round(tip.y), angle: round((Math.atan2(dy, dx) * 180) / Math.PI) };
  };
  // `ends` are [at the start, at the end]; an arrow shows where mail arrives.
  const arrows = ([start, end]) => [
    ...(both || !one.isForward ? [start] : []),
    ...(both || one.isForward ? [end] : []),
  ];
  if (one.isPeer && !one.out) {
    const [a, b] = [one.items.get(one.start), one.items.get(one.end)].sort((first, second) => first.u - second.u);
    const v = (one.rank.begin + one.rank.end) / 2;
    const [from, to] = [a.u + a.uSize, b.u];
    const isStartAbove = a.id === one.start;
    const ends = [arrow(from, v, -1, 0), arrow(to, v, 1, 0)];
    return {
      path: `M${at(from, v)} L${at(to, v)}`,
      arrows: arrows(isStartAbove ? ends : ends.reverse()),
      label: flip({ u: (from + to) / 2, v: v + 12 }),
    };
  }
  const { out: from, into: to } = one;
  if (one.isPeer) {
    const bend = one.rank.end + Math.min(GAP.ranks * 0.9, 26 + Math.abs(to.u - from.u) * 0.12);
    return {
      path: `M${at(from.u, from.v)} C${at(from.u, bend)} ${at(to.u, bend)} ${at(to.u, to.v)}`,
      arrows: arrows([arrow(from.u, from.v, 0, -1), arrow(to.u, to.v, 0, -1)]),
      label: flip({ u: (from.u + to.u) / 2, v: (from.v + to.v) / 8 + bend * 0.75 }),
    };
  }
  const parts = [`M${at(from.u, from.v)}`];
  let here = from;
  const curve = (u, v) => {
    const middle = (here.v + v) / 2;
    parts.push(`C${at(here.u, middle)} ${at(u, middle)} ${at(u, v)}`);
    here = { u, v };
  };
  for (const lane of one.lanes) {
    curve(lane.u, lane.begin);
    parts.push(`L${at(lane.u, lane.end)}`);
    here = { u: lane.u, v: lane.end };
  }
  // On the last curve, nearer to its end, where edges are further apart; below a rank there may be the head of a group.
  const [us, vs] = isAcross ? [0.784, 0.658] : [0.648, 0.576];
  const label = flip({ u: here.u + (to.u - here.u) * us, v: here.v + (to.v - here.v) * vs });
  curve(to.u, to.v);
  return { path: parts.join(" "), arrows: arrows([arrow(from.u, from.v, 0, -1), arrow(to.u, to.v, 0, 1)]), label };
}

const round = (number) => Math.round(number * 10) / 10;

/** The size of the drawing. */
function extent(boxes, routes, flip) {
  const ends = boxes.map(({ u, v, uSize, vSize }) => flip({ u: u + uSize, v: v + vSize }));
  for (const one of routes) {
    if (one.isPeer && one.out) ends.push(flip({ u: one.out.u, v: one.rank.end + GAP.ranks * 0.7 }));
    for (const lane of one.lanes) ends.push(flip({ u: lane.u, v: lane.end }));
  }
  const most = (key) => Math.ceil(ends.reduce((best, end) => Math.max(best, end[key]), 0) + MARGIN);
  return { width: most("x"), height: most("y") };
}
