// Data that is loaded while something is shown.

import { pauseAfter, repeat } from "../app/poll.js";
import { html, useCallback, useEffect, useRef, useState } from "../html.js";
import { Loading, Notice } from "./notice.js";

/**
 * Return `{data, problem, reload}` of `load()`, which is called again when `about` changes and, with `every`, each so
 * many seconds while the page is visible, less often after failures. Data stays while it is loaded again; `instead` is
 * what to show until there is some, or null.
 */
export function useData(load, { about = [], every = 0 } = {}) {
  const [state, setState] = useState({ data: null, problem: null });
  const latest = useRef(0);
  const reload = useCallback(async () => {
    const mine = ++latest.current;
    try {
      const data = await load();
      if (mine === latest.current) setState({ data, problem: null });
      return true;
    } catch (problem) {
      if (mine === latest.current) setState(({ data }) => ({ data, problem }));
      return false;
    }
  }, about);
  useEffect(() => {
    const stop = every ? repeat(reload, (failures) => pauseAfter(failures, every * 1000)) : void reload();
    return () => {
      latest.current += 1;
      stop?.();
    };
  }, [reload, every]);
  const { data, problem } = state;
  const instead = problem ? html`<${Notice} tone="bad">${problem.message}</${Notice}>` : html`<${Loading} />`;
  return { ...state, reload, instead: data === null ? instead : null };
}
