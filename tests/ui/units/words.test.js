import assert from "node:assert/strict";
import { test } from "node:test";

import { callerOf } from "./ui/admin/all-tasks.js";
import { formatAgo, formatElapsed, formatSeconds } from "./ui/components/duration.js";
import { safeUrl } from "./ui/components/markdown.js";
import { formatCost, formatUsage } from "./ui/components/usage.js";

test("durations", () => {
  assert.deepEqual([0.0241, 0.9996, 3.44, 12.6, 65, 7380].map(formatSeconds), ["24 ms", "1.0 s", "3.4 s", "13 s", "1 min 5 s", "2 h 3 min"]);
  assert.deepEqual([formatElapsed(0, 900), formatElapsed(0, 59_900), formatElapsed(0, 60_000)], ["0 s", "59 s", "1 min 0 s"]);
  assert.deepEqual([3_000, 61_000, 90_000_000].map((now) => formatAgo(0, now)), ["just now", "1 min. ago", "yesterday"]);
});

test("an unknown price is never 0", () => {
  const usage = { calls: 2, input_tokens: 1200, output_tokens: 34, cost: 0, unpriced_calls: 2 };
  assert.equal(formatUsage(usage), "1,200 tokens in · 34 out · Price unknown");
  assert.equal(formatCost({ ...usage, cost: 0.5, unpriced_calls: 1 }), "at least $0.500");
  assert.equal(formatCost({ ...usage, cost: 0.00012, unpriced_calls: 0 }), "$0.00012");
  assert.equal(formatCost({ ...usage, unpriced_calls: 0 }), "$0");
  assert.equal(formatUsage({ calls: 0 }), "");
});

test("a name without a swarm is a caller, too", () => {
  assert.deepEqual(["user:ann@b@home", "operator"].map(callerOf), ["user:ann@b", "operator"]);
});

test("links lead to the web or to mail", () => {
  assert.equal(safeUrl("https://example.com/a"), "https://example.com/a");
  assert.equal(safeUrl("mailto:ann@example.com"), "mailto:ann@example.com");
  for (const url of ["javascript:alert(1)", "data:text/html,x", "/relative", " java\nscript:alert(1)"]) assert.equal(safeUrl(url), null);
});
