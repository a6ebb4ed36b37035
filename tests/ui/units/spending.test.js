import assert from "node:assert/strict";
import { test } from "node:test";

import { addUp, asRows, csvOf, fillDays } from "./ui/admin/spending.js";

const usage = (given) => ({ calls: 1, input_tokens: 0, cached_tokens: 0, cache_write_tokens: 0, output_tokens: 0, reasoning_tokens: 0, cost: 0, unpriced_calls: 0, ...given });
const page = (day, given) => ({ tasks: 1, total: usage(given), agents: { a: usage(given) }, models: {}, callers: {}, days: { [day]: usage(given) } });

test("pages are added up", () => {
  const sums = addUp([page("2026-01-31", { cost: 0.5 }), page("2026-01-31", { cost: 0.25 }), page("2026-02-01", { unpriced_calls: 1 })]);
  assert.equal(sums.tasks, 3);
  assert.deepEqual(sums.total, usage({ calls: 3, cost: 0.75, unpriced_calls: 1 }));
  assert.deepEqual(sums.agents.a, sums.total);
  assert.deepEqual(Object.keys(sums.days), ["2026-01-31", "2026-02-01"]);
  assert.equal(sums.days["2026-01-31"].calls, 2);
});

test("days without a call are shown, the latest day first", () => {
  const days = fillDays({ "2026-01-31": usage({}) }, Date.parse("2026-01-30T12:00Z"), Date.parse("2026-02-01T12:00Z"));
  assert.deepEqual(Object.entries(days).map(([day, { calls }]) => [day, calls]), [["2026-02-01", 0], ["2026-01-31", 1], ["2026-01-30", 0]]);
});

test("usage is saved as CSV, in which nothing is a formula", () => {
  const lines = csvOf("agent", { 'a "b", c': usage({ cost: 0.5, input_tokens: 12 }), "=1+1": usage({}) }).split("\r\n");
  assert.equal(lines[0], "agent,calls,input_tokens,cached_tokens,cache_write_tokens,output_tokens,reasoning_tokens,cost,unpriced_calls");
  assert.deepEqual(lines.slice(1), ['"a ""b"", c",1,12,0,0,0,0,0.5,0', "'=1+1,1,0,0,0,0,0,0,0", ""]);
});

test("bars compare costs, or tokens where no price is known", () => {
  const priced = asRows({ cheap: usage({ cost: 1 }), dear: usage({ cost: 4 }), free: usage({ input_tokens: 9 }) });
  assert.deepEqual([priced.measure, ...priced.rows.map(({ name, share }) => [name, share])], ["cost", ["dear", 1], ["cheap", 0.25], ["free", 0]]);
  const unpriced = asRows({ some: usage({ input_tokens: 1, output_tokens: 1 }), more: usage({ input_tokens: 8 }) });
  assert.deepEqual([unpriced.measure, ...unpriced.rows.map(({ name, share }) => [name, share])], ["tokens", ["more", 1], ["some", 0.25]]);
  assert.deepEqual(asRows({}), { rows: [], measure: "tokens" });
});
