import assert from "node:assert/strict";
import { test } from "node:test";
import { firstSentence } from "./ui/graph/agent.js";
import { layout, linesOf } from "./ui/graph/layout.js";
import { CALLER, graphOf, mailNote, neighbours, toolNote } from "./ui/graph/model.js";

const agent = (name, comm_targets = []) => ({ name, comm_targets });
const swarmOf = (...agents) => ({ name: "here", entrypoint: agents[0].name, agents });
const names = (prefix, count) => Array.from({ length: count }, (_, index) => `${prefix}-${index}`);

function star(count) {
  const workers = names("worker-for-something", count - 1);
  return swarmOf(agent("supervisor", workers), ...workers.map((name) => agent(name, ["supervisor"])));
}

function company() {
  const leads = names("lead", 6);
  const team = (lead) => names(`${lead}-worker`, 9);
  return swarmOf(
    agent("chief", leads),
    ...leads.map((lead) => agent(lead, ["chief", ...team(lead)])),
    ...leads.flatMap((lead) => team(lead).map((name) => agent(name, [lead]))),
  );
}

const everybody = (count) => swarmOf(...names("peer", count).map((name, _, all) => agent(name, all.filter((other) => other !== name))));

const ring = swarmOf(agent("a", ["b"]), agent("b", ["c"]), agent("c", ["a"]), agent("alone"), agent("inbox", ["b"]));

const federation = swarmOf(agent("supervisor", ["writer@here", "sage@far", "oracle@far", "clerk@shop"]), agent("writer", ["supervisor", "sage@far"]));

const overlap = (a, b) => a.x < b.x + b.width && b.x < a.x + a.width && a.y < b.y + b.height && b.y < a.y + a.height;

/** Points of a path every few pixels, its curves included. */
function pointsOf(path) {
  const points = [];
  let here;
  for (const [, command, rest] of path.matchAll(/([MLC])([^MLC]*)/g)) {
    const ends = rest.trim().split(" ").map((pair) => pair.split(",").map(Number));
    const [a, b, c, d] = command === "C" ? [here, ...ends] : [here ?? ends[0], here ?? ends[0], ends[0], ends[0]];
    for (let t = 0; t <= 1; t += 0.05) points.push([0, 1].map((i) => (1 - t) ** 3 * a[i] + 3 * (1 - t) ** 2 * t * b[i] + 3 * (1 - t) * t * t * c[i] + t ** 3 * d[i]));
    here = ends.at(-1);
  }
  return points;
}

for (const [title, swarm] of Object.entries({ one: star(1), twelve: star(12), sixty: star(60), company: company(), peers: everybody(8), ring, federation })) {
  for (const window of [{ width: 1100, height: 760 }, { width: 340, height: 460 }]) {
    test(`${title}: nothing overlaps in a window of ${window.width} px`, () => {
      const graph = graphOf(swarm);
      const drawing = layout(graph, window);
      assert.equal(drawing.nodes.length, graph.nodes.length);
      for (const [index, node] of drawing.nodes.entries()) {
        assert.equal(node.lines.join("").replaceAll(" ", ""), graph.nodes.find(({ id }) => id === node.id).name);
        assert.ok(node.x >= 0 && node.y >= 0 && node.x + node.width <= drawing.width && node.y + node.height <= drawing.height, node.id);
        for (const other of drawing.nodes.slice(index + 1)) assert.ok(!overlap(node, other), `${node.id} and ${other.id}`);
      }
      for (const edge of drawing.edges) {
        assert.equal(edge.arrows.length, edge.both ? 2 : 1);
        const passed = drawing.nodes.filter(({ id }) => id !== edge.from && id !== edge.to);
        for (const [x, y] of pointsOf(edge.path)) {
          assert.ok(x >= 0 && y >= 0 && x <= drawing.width && y <= drawing.height, edge.key);
          const under = passed.find((node) => overlap({ x: x - 1, y: y - 1, width: 2, height: 2 }, node));
          assert.ok(!under, `${edge.key} runs under ${under?.id}`);
        }
      }
    });
  }
}

test("sixty agents can be read in a common window", () => {
  for (const swarm of [star(60), company()]) {
    const { width, height } = layout(graphOf(swarm), { width: 1100, height: 800 });
    assert.ok(Math.min(1100 / width, 800 / height) > 0.7, `${width} x ${height}`);
  }
});

test("two agents that write to each other share an edge; a target of the own swarm is the agent", () => {
  const { nodes, edges } = graphOf(federation);
  assert.deepEqual(nodes.map(({ id, kind }) => [id, kind]), [
    ["supervisor", "agent"], ["writer", "agent"], ["sage@far", "remote"], ["oracle@far", "remote"], ["clerk@shop", "remote"],
  ]);
  assert.deepEqual(edges.filter(({ both }) => both).map(({ from, to }) => [from, to]), [["supervisor", "writer"]]);
  assert.equal(edges.length, 5);
  assert.deepEqual(neighbours({ edges }, "writer"), [
    { id: "supervisor", writes: true, reads: true },
    { id: "sage@far", writes: true, reads: false },
  ]);
});

test("arrows point into the agents that get mail, and agents stand in the order of the swarm", () => {
  const window = { width: 1100, height: 760 };
  const { nodes, edges } = layout(graphOf(swarmOf(agent("a", ["b", "c"]), agent("b", ["a"]), agent("c"))), window);
  const [a, b, c] = ["a", "b", "c"].map((id) => nodes.find((node) => node.id === id));
  assert.ok(a.x < b.x && b.x === c.x && b.y < c.y);
  const [both, single] = edges;
  assert.deepEqual(both.arrows.map(({ x, angle }) => [x, angle]), [[a.x + a.width, 180], [b.x, 0]]);
  assert.deepEqual(single.arrows.map(({ x, angle }) => [x, angle]), [[c.x, 0]]);
});

test("agents of another swarm stand in one frame", () => {
  const { nodes, groups } = layout(graphOf(federation));
  assert.deepEqual(groups.map(({ swarm }) => swarm).sort(), ["far", "shop"]);
  const far = groups.find(({ swarm }) => swarm === "far");
  const inside = nodes.filter((node) => node.x > far.x && node.y > far.y && node.x + node.width < far.x + far.width && node.y + node.height < far.y + far.height);
  assert.deepEqual(inside.map(({ id }) => id).sort(), ["oracle@far", "sage@far"]);
});

test("mail of a task adds its caller and undeclared pairs, and no edge for an answer", () => {
  const { root, nodes, edges } = graphOf(swarmOf(agent("a", ["b"]), agent("b")), [
    { from: CALLER, to: "a" }, { from: "b", to: "a" }, { from: "a", to: "x@far" }, { from: "x@far", to: "a" }, { from: "a", to: CALLER },
  ]);
  assert.equal(root, CALLER);
  assert.deepEqual(nodes.map(({ kind }) => kind), ["agent", "agent", "caller", "remote"]);
  assert.deepEqual(edges.map(({ from, to, both, isDeclared }) => [from, to, both, isDeclared]), [
    ["a", "b", false, true], [CALLER, "a", true, false], ["a", "x@far", true, false],
  ]);
});

test("long names are broken after separators, and shown whole", () => {
  assert.deepEqual(linesOf("quarterly-financial-report-summarizer"), ["quarterly-financial-", "report-summarizer"]);
  assert.deepEqual(linesOf("a".repeat(30)), ["a".repeat(26), "aaaa"]);
});

test("a node says which tools its agent has, and how much mail it has got and sent", () => {
  assert.equal(toolNote({ actions: [] }), "");
  assert.equal(toolNote({ actions: [], mcp_servers: ["files"], mcp_tools: [] }), "MCP tools");
  assert.equal(toolNote({ actions: ["dig"], mcp_tools: [] }), "dig");
  assert.equal(toolNote({ actions: ["dig"], mcp_servers: ["files"], mcp_tools: ["files_read"] }), "2 tools");
  assert.equal(mailNote({ received: 3, sent: 2 }), "3 in · 2 out");
});

test("the first sentence of a prompt describes its agent", () => {
  assert.equal(firstSentence("You dig for gold. Never stop.\nAsk ann."), "You dig for gold.");
  assert.equal(firstSentence("  Version 1.5 of the digger\nDig."), "Version 1.5 of the digger");
  assert.equal(firstSentence(null), "");
  assert.equal(firstSentence("word ".repeat(80)).length, 200);
});
