// The trace: spans, the time axis, the tree, filters, snapshots and comparisons of a task's events.

import assert from "node:assert/strict";
import { test } from "node:test";

import { compare, originOf } from "./ui/trace/compare.js";
import { oneLine, readEntries } from "./ui/trace/entries.js";
import { NO_FILTER, filterEntries, filterSpans } from "./ui/trace/filters.js";
import { readHistory, readTool } from "./ui/trace/history.js";
import { indexOf, lastGood, messageOf, snapshotsOf } from "./ui/trace/snapshots.js";
import { makeScale, ticksOf } from "./ui/trace/scale.js";
import { readSpans } from "./ui/trace/spans.js";
import { flatten, readTree } from "./ui/trace/tree.js";
import { durationOf, formatTick } from "./ui/trace/waterfall.js";

const ZERO = Date.parse("2026-01-01T00:00:00Z");
const iso = (ms) => new Date(ZERO + ms).toISOString();

/** Events from commits: each a time in ms and its events as [kind, extra_data, further data]. */
function task(...commits) {
  const events = [];
  for (const [at, ...kinds] of commits) {
    for (const [event, extra_data = {}, more = {}] of kinds) {
      const seq = events.length + 1;
      events.push({ event, id: String(seq), seq, data: { timestamp: iso(at), description: `${event} happened`, task_id: "t", extra_data, ...more } });
    }
  }
  return events;
}

const address = (name) => ({ address: name, address_type: name === "ann" ? "user" : name === "system" ? "system" : "agent" });
const mail = (from, to, body, id, msg_type = "request") => [
  "new_message",
  { full_message: { id, msg_type, message: { sender: address(from), recipient: address(to), subject: "S", body, request_id: id } } },
];
const usage = { calls: 1, input_tokens: 10, output_tokens: 2, cost: 0.1, unpriced_calls: 0 };
const timing = (began, seconds, ...model_calls) => ({ began: iso(began), seconds, ...(model_calls.length ? { model_calls } : {}) });

/** ann asks boss, boss asks dig, dig runs an action and answers, boss completes the task. */
const EVENTS = task(
  [0, mail("ann", "boss", "find gold", "r1")],
  [1_000,
    ["tool_call", { agent: "boss", tool_name: "send_request", tool_args: { target: "digger" }, usage, timing: timing(10, 0.9, { model: "gpt", after: 0.1, seconds: 0.8, attempts: 2 }), reasoning: "he digs" }],
    ["await_message", { agent: "boss" }],
    mail("boss", "digger", "dig here", "r2"),
  ],
  [3_000,
    ["tool_call", { agent: "digger", tool_name: "dig", tool_args: { where: "hills" }, timing: timing(1_500, 1.4) }],
    ["action_call", { agent: "digger", after: 0.2 }],
    ["action_error", { agent: "digger", seconds: 1 }],
    mail("system", "digger", "dig: broken", "s1", "broadcast"),
  ],
  [3_100, ["tool_call", { agent: "digger", tool_name: "send_response", tool_args: { target: "boss" } }], mail("digger", "boss", "no gold", "r2", "response")],
  [4_000,
    ["tool_call", { agent: "boss", tool_name: "task_complete", tool_args: {}, timing: timing(3_200, 0.7) }],
    ["task_complete", {}, { response: "there is none" }],
  ],
);

const item = (kind, id, seq, at, facts) => ({ kind, id, seq, version: seq, time: iso(at), ...facts });
const turn = (id, agent, seq, last, at, seconds, facts) => item("turn", id, seq, at, { agent, last, seconds, is_timed: true, state: "ok", queued: null, usage: null, ...facts });

/** What the server makes of `EVENTS`. */
const ITEMS = [
  item("message", "1.0", 1, 0, { who: "ann", recipients: ["boss"], text: "find gold" }),
  item("work", "1.1", 1, 0, { turns: 4 }),
  turn("2.0", "boss", 2, 4, 10, 0.9, { did: "asks digger", queued: iso(0), cause: 1, usage }),
  item("model_call", "2.1", 2, 110, { turn: "2.0", agent: "boss", model: "gpt", seconds: 0.8, attempts: 2, usage }),
  item("mail", "4.1", 4, 1_000, { work: "1.1", sender: "boss", recipients: ["digger"], text: "dig here", type: "request", cause: 1 }),
  item("wait", "4.0", 4, 1_000, { agent: "boss", names: ["digger"], seconds: 2.2 }),
  turn("5.0", "digger", 5, 8, 1_500, 1.4, { did: "calls dig", state: "failed", cause: 4 }),
  item("wait", "5.1", 5, 3_000, { agent: "digger", names: ["boss"], seconds: 0.01 }),
  item("action", "7.0", 6, 1_700, { version: 7, work: "1.1", turn: "5.0", agent: "digger", name: "dig", seconds: 1, has_failed: true }),
  turn("9.0", "digger", 9, 10, 3_000, 0.1, { did: "answers boss", is_timed: false, cause: 4 }),
  item("mail", "10.0", 10, 3_100, { work: "1.1", sender: "digger", recipients: ["boss"], text: "no gold", type: "response", cause: 4 }),
  turn("11.0", "boss", 11, 12, 3_200, 0.7, { did: "completes the task", cause: 10 }),
  item("answer", "12.0", 12, 4_000, { who: "boss", text: "there is none" }),
];

test("a text in one line has no marks of tables, code, headings, links and emphasis", () => {
  const table = "## **Oslo**\n\n| Time | Plan |\n| --- | :---: |\n| 10:00 | **Walk** |\nIt's [2**17](https://x.org/a), or a[0](1).\n```js\nx\n```";
  assert.equal(oneLine(table), "Oslo Time · Plan 10:00 · Walk It's 2**17, or a[0](1). x");
});

test("a pause is no answer", () => {
  const [entry] = readEntries(task([0, ["task_complete", {}, { response: "[]", question: "lead wants to run book()" }]]));
  assert.deepEqual([entry.name, entry.text, entry.tone], ["pauses", "lead wants to run book()", "warn"]);
});

test("ticks of an axis have labels that differ", () => {
  const labels = (...seconds) => seconds.map((each) => formatTick(each, seconds.map((other) => ({ seconds: other }))));
  assert.deepEqual(labels(125.5, 126, 126.5, 127), ["2 min 5.5 s", "2 min 6.0 s", "2 min 6.5 s", "2 min 7.0 s"]);
  assert.deepEqual(labels(0, 100, 200), ["0 ms", "1 min 40 s", "3 min 20 s"]);
});

test("spans", () => {
  const { spans, agents, begin, end } = readSpans(ITEMS, EVENTS);
  const rows = spans.map(({ kind, agent, name, first, last, begin, end }) => [kind, agent, name, first, last, begin - ZERO, end - ZERO]);
  assert.deepEqual(rows, [
    ["message", null, "ann writes to boss", 1, 1, 0, 0],
    ["turn", "boss", "asks digger", 2, 4, 10, 910],
    ["wait", "boss", "waits for digger", 4, 4, 1_000, 3_200],
    ["turn", "digger", "calls dig", 5, 8, 1_500, 2_900],
    ["action", "digger", "dig", 6, 7, 1_700, 2_700],
    ["turn", "digger", "answers boss", 9, 10, 3_000, 3_100],
    ["turn", "boss", "completes the task", 11, 12, 3_200, 3_900],
    ["end", null, "the answer", 12, 12, 4_000, 4_000],
  ]);
  assert.deepEqual([agents, begin - ZERO, end - ZERO], [["boss", "digger"], 0, 4_000]);
  const [, asks, , digs, action, answers] = spans;
  assert.deepEqual([asks.usage, asks.model, asks.snippet], [usage, "gpt", "gpt, 2 attempts"]);
  assert.equal(asks.queued - ZERO, 0);
  assert.deepEqual([digs.status, action.status, answers.status, answers.isTimed], ["failed", "failed", "ok", false]);
});

test("several model calls of a turn have rows of their own", () => {
  const again = item("model_call", "2.2", 2, 500, { turn: "2.0", agent: "boss", model: "claude", seconds: 0.1, attempts: 1, usage });
  const { spans } = readSpans([...ITEMS, again], EVENTS);
  const [asks, ...calls] = spans.filter(({ id, parent }) => id === "turn 2" || parent === spans[1].id || id === spans[1].id);
  assert.deepEqual([asks.model, calls.map(({ kind, name, usage: used }) => [kind, name, used])], [undefined, [["model", "gpt", usage], ["model", "claude", usage]]]);
});

test("how long a row took", () => {
  assert.equal(durationOf({ kind: "action", begin: 5, end: 5 }), "< 1 ms");
  assert.equal(durationOf({ kind: "turn", begin: 42, end: 60, isTimed: false }), "≤ 18 ms");
});

test("what runs now is open, and so is a wait for a person", () => {
  const live = new Map([["digger", { since: ZERO + 1_200, work: new Map([["model 1", { kind: "model", name: "gpt", since: ZERO + 1_300, retry: null }]]) }]]);
  const waiting = { ...ITEMS.find(({ kind }) => kind === "wait"), seconds: null };
  const { spans } = readSpans([...ITEMS.slice(0, 4), waiting], EVENTS, { live, status: "running" });
  const open = spans.filter(({ end }) => end === null).map(({ kind, agent, name, status, begin }) => [kind, agent, name, status, begin - ZERO]);
  assert.deepEqual(open, [
    ["wait", "boss", "waits for digger", "waiting", 1_000],
    ["turn", "digger", "is working", "running", 1_200],
    ["model", "digger", "gpt", "running", 1_300],
  ]);
  const forYou = item("wait", "4.0", 4, 5, { agent: "boss", names: [], seconds: null });
  const waits = (status, ...items) => readSpans(items, EVENTS, { status }).spans.map(({ name, end }) => [name, end]);
  assert.deepEqual([waits("paused", forYou, waiting), waits("running", forYou)], [[["waits for you", null]], []]);
});

test("long pauses are cut short on the axis", () => {
  const span = (begin, end) => ({ kind: "turn", begin: ZERO + begin, end: ZERO + end });
  const scale = makeScale([span(0, 1_000), span(3_600_000, 3_601_000)], ZERO);
  assert.equal(scale.pauses.length, 1);
  assert.ok(Math.abs(scale.pauses[0].seconds - 3_599) < 1e-6);
  const [half, hour] = [scale.position(ZERO + 500), scale.position(ZERO + 3_600_500)];
  assert.ok(Math.abs(half - 0.24) < 1e-9 && Math.abs(hour - 0.76) < 1e-9);
  assert.ok(Math.abs(scale.invert(hour) - ZERO - 3_600_500) < 1);
  assert.deepEqual([scale.position(ZERO), scale.position(ZERO + 3_601_000)], [0, 1]);
  assert.deepEqual(ticksOf(scale, ZERO).map(({ seconds }) => Math.round(seconds)), [0, 3_600]);
  assert.deepEqual(ticksOf(makeScale([span(0, 1_000)], ZERO), ZERO, 5).map(({ seconds }) => seconds), [0, 0.2, 0.4, 0.6, 0.8]);
  assert.deepEqual(ticksOf(makeScale([span(0, 2)], ZERO), ZERO, 10).map(({ seconds }) => seconds), [0, 0.001]);
  assert.deepEqual(makeScale([], ZERO).pauses, []);
});

test("a tree of who asked whom", () => {
  const nodes = flatten(readTree(ITEMS, readSpans(ITEMS, EVENTS).spans));
  assert.deepEqual(
    nodes.map(({ level, who, whom, text, turns, status }) => [level, who, whom, text, turns.map(({ first }) => first), status]),
    [
      [0, "ann", "boss", "find gold", [2], "ok"],
      [1, "boss", "digger", "dig here", [5, 9], "failed"],
      [2, "digger", "boss", "no gold", [11], "ok"],
      [1, "boss", "ann", "there is none", [], "ok"],
    ],
  );
  const closed = flatten(readTree(ITEMS, readSpans(ITEMS, EVENTS).spans), new Set(["message 4"]));
  assert.equal(closed.length, 3);
});

test("filters", () => {
  const { spans } = readSpans(ITEMS, EVENTS);
  const firsts = (filter) => filterSpans(spans, { ...NO_FILTER, ...filter }).map(({ kind, first }) => `${kind} ${first}`);
  assert.deepEqual(firsts({ agent: "digger" }), ["turn 5", "action 6", "turn 9"]);
  assert.deepEqual(firsts({ kind: "model" }), ["turn 2"]);
  assert.deepEqual(firsts({ kind: "problem" }), ["turn 5", "action 6"]);
  assert.deepEqual(firsts({ text: "HILLS dig" }), ["turn 5", "action 6"]);
  assert.deepEqual(firsts({ text: "he digs" }), ["turn 2"]);
  const entries = readEntries(EVENTS);
  assert.equal(readEntries(EVENTS)[0], entries[0]);
  const seqs = (filter) => filterEntries(entries, { ...NO_FILTER, ...filter }).map(({ seq }) => seq);
  assert.deepEqual(seqs({ kind: "message", agent: "digger" }), [4, 8, 10]);
  assert.deepEqual(seqs({ kind: "problem" }), [7]);
  assert.deepEqual(seqs({ text: "none there" }), [12]);
});

test("snapshots, and the last one that was in order", () => {
  const snapshots = snapshotsOf(EVENTS);
  assert.deepEqual(snapshots.map(({ first, last, who }) => [first, last, who]), [[1, 1, "ann → boss"], [2, 4, "boss → digger"], [5, 8, "digger"], [9, 10, "digger → boss"], [11, 12, "answer"]]);
  assert.deepEqual([indexOf(snapshots, null), indexOf(snapshots, 3), indexOf(snapshots, 99)], [4, 1, 4]);
  assert.equal(lastGood(snapshots), 4);
  assert.equal(lastGood(snapshots.slice(0, 2)), null);
  assert.deepEqual(messageOf(EVENTS[0]), { body: "find gold", subject: "S", entrypoint: "boss", msg_type: "request" });
  assert.equal(messageOf(EVENTS[3]), null);
});

test("a fork beside its original", () => {
  const fork = task(
    [9_000, ["task_forked", { forked_from: "t", at: 4 }], ["history_inherited", { agent: "boss" }], mail("boss", "digger", "dig here", "x2")],
    [9_100, ["tool_call", { agent: "digger", tool_name: "dig", tool_args: { where: "hills" } }], ["action_call", { agent: "digger" }], ["action_complete", { agent: "digger" }]],
    [9_200, ["tool_call", { agent: "digger", tool_name: "send_response", tool_args: { target: "boss" } }]],
  );
  assert.deepEqual(originOf(fork), { task_id: "t", at: 4 });
  assert.equal(originOf(EVENTS), null);
  const { shared, same, parts, rows } = compare(EVENTS, fork, 4);
  assert.deepEqual([shared, same, parts], [4, 3, 2]);
  assert.deepEqual(
    rows.map(({ left, right, isSame }) => [left?.seq, right?.seq, isSame]),
    [[5, 4, true], [6, 5, true], [7, 6, false], [8, undefined, false], [9, 7, true], [10, undefined, false], [11, undefined, false], [12, undefined, false]],
  );
  const again = task([0, ["task_forked", { forked_from: "t", at: 8 }]], ...[[1, ...EVENTS.slice(8).map(({ event, data }) => [event, data.extra_data, data])]]);
  assert.equal(compare(EVENTS, again, 8).parts, null);
});

test("a text that only begins like mail, many times, is read at once", () => {
  const begin = '<incoming_message>\n<timestamp>t</timestamp>\n<from type="agent">x</from>\n<to>\n<address type="agent">y</address>\n</to>\n<subject>s</subject>\n<body>b\n';
  const content = begin.repeat(400);
  const begun = performance.now();
  assert.deepEqual(readHistory([{ role: "assistant", content }])[0].parts, [{ kind: "text", text: content }]);
  assert.ok(performance.now() - begun < 3_000);
});

test("mail is read out of what a model has read", () => {
  const mail = (from, to, subject, body) =>
    `<incoming_message>\n<timestamp>2026-01-31T08:00:00+00:00</timestamp>\n<from type="agent">${from}</from>\n<to>\n${to.map((each) => `<address type="agent">${each}</address>`).join("\n")}\n</to>\n<subject>${subject}</subject>\n<body>${body}</body>\n</incoming_message>`;
  const parts = (content) => readHistory([{ role: "user", content }])[0].parts.map(({ kind, from, to, subject, text }) => (kind === "mail" ? [from, to, subject, text] : text));
  const one = mail("a&amp;b", ["c", "d&lt;e"], "Re: &lt;body>", "1 &lt; 2 <b>\n&lt;/body> &amp;lt;body &lt;public>");
  assert.deepEqual(parts(one), [["a&b", ["c", "d<e"], "Re: <body>", "1 &lt; 2 <b>\n</body> &lt;body &lt;public>"]]);
  assert.deepEqual(parts([{ type: "text", text: `First.\n${one}` }]).length, 2);
  assert.deepEqual(parts(`<public>\n${mail("a", ["all"], "s", "&lt;public>")}\n${mail("b", ["all"], "s", "t")}\n</public>`), ["<public>\n", ["a", ["all"], "s", "<public>"], ["b", ["all"], "s", "t"], "\n</public>"]);
  assert.deepEqual(parts("<incoming_message>"), ["<incoming_message>"]);
});

test("histories in the formats of three APIs", () => {
  const parts = (entry) => readHistory([entry]).map(({ role, parts }) => [role, ...parts.map(({ kind, name, text }) => [kind, name, text])]);
  const call = { id: "c", function: { name: "dig", arguments: '{"a":1}' } };
  const pretty = '{\n  "a": 1\n}';
  assert.deepEqual(parts({ role: "assistant", content: "hm", reasoning_content: "why", tool_calls: [call] }), [["assistant", ["reasoning", undefined, "why"], ["text", undefined, "hm"], ["call", "dig", pretty]]]);
  assert.deepEqual(parts({ role: "assistant", content: [{ type: "thinking", thinking: "why" }, { type: "tool_use", id: "c", name: "dig", input: { a: 1 } }] }), [["assistant", ["reasoning", undefined, "why"], ["call", "dig", pretty]]]);
  assert.deepEqual(parts({ type: "reasoning", summary: [{ type: "summary_text", text: "why" }] }), [["assistant", ["reasoning", undefined, "why"]]]);
  assert.deepEqual(parts({ type: "message", role: "assistant", content: [{ type: "output_text", text: "hm" }] }), [["assistant", ["text", undefined, "hm"]]]);
  const both = readHistory([{ type: "function_call", name: "dig", call_id: "c", arguments: "not JSON" }, { type: "function_call_output", call_id: "c", output: "gold" }]);
  assert.deepEqual(both.map(({ role, parts: [{ kind, name, text }] }) => [role, kind, name, text]), [["assistant", "call", "dig", "not JSON"], ["tool", "result", "dig", "gold"]]);
  assert.deepEqual(parts({ type: "web_search_call", id: "w" }), [["assistant", ["data", undefined, '{\n  "type": "web_search_call",\n  "id": "w"\n}']]]);
  assert.deepEqual(readTool({ type: "function", function: { name: "dig", parameters: {} } }), { name: "dig", description: "", parameters: {} });
  assert.deepEqual(readTool({ type: "web_search" }), { name: "web_search", description: "", parameters: null });
});
