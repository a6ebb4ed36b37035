// Which part of a drawing a pane shows: `{x, y, scale}`, the place of the drawing's corner in the pane. No page here.

export const LIMITS = { least: 0.1, most: 2.5 };

/** The smallest scale at which names can be read; a drawing that needs less begins at its root. */
export const READABLE = 0.7;

const clamp = (value, least, most) => Math.min(most, Math.max(least, value));

/** All of the drawing, in the middle, and no larger than it is. */
export function fit(drawing, pane) {
  const scale = clamp(Math.min(pane.width / drawing.width, pane.height / drawing.height), LIMITS.least, 1);
  return { scale, x: (pane.width - drawing.width * scale) / 2, y: (pane.height - drawing.height * scale) / 2 };
}

/**
 * What is shown first: all, if it can be read; else what follows `root`, which stands at the edge that mail comes
 * from.
 */
export function open(drawing, pane, root, margin = 12) {
  const whole = fit(drawing, pane);
  if (whole.scale >= READABLE || !root) return whole;
  const [left, top] = [margin - root.x * READABLE, margin - root.y * READABLE];
  const middle = {
    x: pane.width / 2 - (root.x + root.width / 2) * READABLE,
    y: pane.height / 2 - (root.y + root.height / 2) * READABLE,
  };
  const view = { scale: READABLE, ...(drawing.isAcross ? { x: left, y: middle.y } : { x: middle.x, y: top }) };
  return contain(view, drawing, pane);
}

/** The view moved so that the drawing fills the pane where it can, and stands in the middle where it can't. */
function contain(view, drawing, pane) {
  const along = (at, size, room) => (size <= room ? (room - size) / 2 : clamp(at, room - size, 0));
  return {
    ...view,
    x: along(view.x, drawing.width * view.scale, pane.width),
    y: along(view.y, drawing.height * view.scale, pane.height),
  };
}

/** The view `factor` times as large, with the point of the pane staying where it is. */
export function zoom(view, factor, point) {
  const scale = clamp(view.scale * factor, LIMITS.least, LIMITS.most);
  const ratio = scale / view.scale;
  return { scale, x: point.x - (point.x - view.x) * ratio, y: point.y - (point.y - view.y) * ratio };
}

/** The view moved; a strip of the drawing stays in sight. */
export function pan(view, dx, dy, drawing, pane, strip = 64) {
  const along = (at, size, room) => clamp(at, strip - size, room - strip);
  return {
    ...view,
    x: along(view.x + dx, drawing.width * view.scale, pane.width),
    y: along(view.y + dy, drawing.height * view.scale, pane.height),
  };
}

/** The view moved as little as shows a box of the drawing. */
export function reveal(view, box, pane, margin = 24) {
  const along = (at, begin, size, room) => {
    const from = at + begin * view.scale;
    const to = from + size * view.scale;
    if (from < margin) return at + margin - from;
    return to > room - margin ? at + Math.max(room - margin - to, margin - from) : at;
  };
  return { ...view, x: along(view.x, box.x, box.width, pane.width), y: along(view.y, box.y, box.height, pane.height) };
}

const TOWARDS = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };

/** How far an arrow key pans: `[dx, dy]`, or null for another key. */
export const stepOf = (key, by = 60) => TOWARDS[key]?.map((part) => -part * by) ?? null;

/**
 * The id of the node that an arrow key leads to from a node: along an edge if one leads there, else the nearest; null
 * if there is none.
 */
export function nextNode(key, from, nodes, linked) {
  const towards = TOWARDS[key];
  if (!towards) return null;
  const [x, y] = [from.x + from.width / 2, from.y + from.height / 2];
  let best = null;
  for (const node of nodes) {
    if (node.id === from.id) continue;
    const [dx, dy] = [node.x + node.width / 2 - x, node.y + node.height / 2 - y];
    const ahead = dx * towards[0] + dy * towards[1];
    const aside = Math.abs(dx * towards[1]) + Math.abs(dy * towards[0]);
    if (ahead < 8 || aside > ahead * 4 + 40) continue;
    const cost = (ahead + 2 * aside) * (linked.has(node.id) ? 0.5 : 1);
    if (!best || cost < best.cost) best = { id: node.id, cost };
  }
  return best?.id ?? null;
}
