// Asking the server again and again: only while the page is visible, and less often after failures.

/** Milliseconds between two requests, at most. */
const LONGEST = 60_000;

export const isVisible = () => globalThis.document?.visibilityState !== "hidden";

/** Return how long to wait after so many failures in a row, in milliseconds; `pause` after a success. */
export const pauseAfter = (failures, pause) => Math.max(pause, Math.min(LONGEST, pause * 2 ** failures));

/**
 * Call `work` now, and again `pause(failures)` milliseconds after each call; it returns (a promise of) whether it has
 * succeeded. While the page is hidden there are no calls, or one a minute if `evenHidden()`, and one as soon as it is
 * visible again. Returns the function that ends it.
 */
export function repeat(work, pause, { evenHidden = () => false } = {}) {
  let timer = null;
  let failures = 0;
  let isOver = false;
  let isWorking = false;
  const run = async () => {
    clearTimeout(timer);
    if (isWorking || isOver) return;
    isWorking = true;
    failures = (await work()) ? 0 : failures + 1;
    isWorking = false;
    wait();
  };
  const wait = () => {
    clearTimeout(timer);
    if (isOver || !(isVisible() || evenHidden())) return;
    timer = setTimeout(run, isVisible() ? pause(failures) : LONGEST);
  };
  const onShow = () => (isVisible() ? void run() : wait());
  document.addEventListener("visibilitychange", onShow);
  void run();
  return () => {
    isOver = true;
    clearTimeout(timer);
    document.removeEventListener("visibilitychange", onShow);
  };
}
