import assert from "node:assert/strict";
import { test } from "node:test";
import { READABLE, fit, nextNode, open, pan, reveal, zoom } from "./ui/graph/viewport.js";

const pane = { width: 400, height: 300 };
const small = { width: 200, height: 100 };
const large = { width: 4000, height: 1000 };

test("a small drawing stands in the middle, a large one is shown whole", () => {
  assert.deepEqual(fit(small, pane), { scale: 1, x: 100, y: 100 });
  assert.deepEqual(fit(large, pane), { scale: 0.1, x: 0, y: 100 });
});

test("what could not be read when shown whole begins at its root", () => {
  const view = open({ ...large, isAcross: true }, pane, { x: 200, y: 480, width: 150, height: 46 });
  assert.equal(view.scale, READABLE);
  assert.equal(200 * READABLE + view.x, 12);
  assert.ok(480 * READABLE + view.y > 0 && 526 * READABLE + view.y < pane.height);
  assert.equal(open(small, pane, { x: 0, y: 0, width: 10, height: 10 }).scale, 1);
});

test("zooming keeps the point below the pointer, within limits", () => {
  const view = zoom({ scale: 1, x: 10, y: 20 }, 2, { x: 110, y: 70 });
  assert.deepEqual(view, { scale: 2, x: -90, y: -30 });
  assert.equal(zoom(view, 100, { x: 0, y: 0 }).scale, 2.5);
});

test("panning leaves a strip of the drawing in sight", () => {
  assert.deepEqual(pan({ scale: 1, x: 0, y: 0 }, -30, 10, small, pane), { scale: 1, x: -30, y: 10 });
  assert.equal(pan({ scale: 1, x: 0, y: 0 }, -9000, 0, small, pane).x, -136);
});

test("an agent that gets the focus comes into sight", () => {
  const view = { scale: 1, x: 0, y: 0 };
  assert.deepEqual(reveal(view, { x: 50, y: 50, width: 100, height: 40 }, pane), view);
  assert.deepEqual(reveal(view, { x: 500, y: -60, width: 100, height: 40 }, pane), { scale: 1, x: -224, y: 84 });
});

test("arrow keys lead along edges, else to the nearest agent", () => {
  const at = (id, x, y) => ({ id, x, y, width: 100, height: 40 });
  const nodes = [at("a", 0, 100), at("far", 300, 100), at("near", 200, 60), at("below", 0, 200)];
  assert.equal(nextNode("ArrowRight", nodes[0], nodes, new Set()), "near");
  assert.equal(nextNode("ArrowRight", nodes[0], nodes, new Set(["far"])), "far");
  assert.equal(nextNode("ArrowDown", nodes[0], nodes, new Set()), "below");
  assert.equal(nextNode("ArrowLeft", nodes[0], nodes, new Set()), null);
  assert.equal(nextNode("Enter", nodes[0], nodes, new Set()), null);
});
