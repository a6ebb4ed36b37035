// Work that takes time, and can fail.

import { html, useState } from "../html.js";
import { Notice } from "./notice.js";

/**
 * Return `{perform, isBusy, problem, said}`: `perform(work)` runs work, once at a time, and keeps what it rejects with;
 * `said` is a notice of that. After success it stays busy, as what was worked on goes, unless the work `repeats`.
 */
export function useWork({ repeats = false } = {}) {
  const [problem, setProblem] = useState(null);
  const [isBusy, setBusy] = useState(false);
  const perform = async (work) => {
    if (isBusy) return;
    setBusy(true);
    setProblem(null);
    try {
      await work();
      if (repeats) setBusy(false);
    } catch (failure) {
      setProblem(failure);
      setBusy(false);
    }
  };
  return { perform, isBusy, problem, said: problem && html`<${Notice} tone="bad">${problem.message}</${Notice}>` };
}
