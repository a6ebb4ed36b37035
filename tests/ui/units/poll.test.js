import assert from "node:assert/strict";
import { test } from "node:test";

import { pauseAfter, repeat } from "./ui/app/poll.js";

test("after failures the pauses grow, up to a minute", () => {
  assert.deepEqual([0, 1, 2, 4, 9].map((failures) => pauseAfter(failures, 3_000)), [3_000, 6_000, 12_000, 48_000, 60_000]);
  assert.equal(pauseAfter(3, 90_000), 90_000);
});

test("nothing is asked while the page is hidden, and at once when it is visible again", async (context) => {
  context.mock.timers.enable({ apis: ["setTimeout"] });
  const settle = async () => {
    for (let n = 0; n < 5; n += 1) await null;
  };
  let listener;
  const former = globalThis.document;
  globalThis.document = { visibilityState: "visible", addEventListener: (_, given) => (listener = given), removeEventListener: () => (listener = null) };
  try {
    const results = [true, false, false, true, true, true];
    const pauses = [];
    let asked = 0;
    const stop = repeat(async () => results[asked++], (failures) => (pauses.push(failures), 100));
    for (let n = 0; n < 3; n += 1) {
      await settle();
      context.mock.timers.tick(100);
    }
    await settle();
    assert.deepEqual([asked, pauses], [4, [0, 1, 2, 0]]);
    document.visibilityState = "hidden";
    listener();
    context.mock.timers.tick(1_000);
    await settle();
    assert.equal(asked, 4);
    document.visibilityState = "visible";
    listener();
    await settle();
    assert.equal(asked, 5);
    stop();
    context.mock.timers.tick(1_000);
    await settle();
    assert.deepEqual([asked, listener], [5, null]);
  } finally {
    globalThis.document = former;
  }
});
