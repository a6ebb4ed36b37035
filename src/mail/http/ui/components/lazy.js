// Parts of the page that are loaded when they are first shown, or before that while nothing else happens.

import { html, useEffect, useState } from "../html.js";
import { Loading, Notice } from "./notice.js";

const whenIdle = globalThis.requestIdleCallback ?? ((work) => setTimeout(work, 500)); // Safari has none

/**
 * Return the component of a name in the module that `load()` imports, which is loaded when it is first shown. Its
 * `prepare()` loads it in an idle moment, so that nobody waits for it later.
 */
export function lazy(load, name) {
  let Part = null;
  const get = async () => {
    Part ??= (await load())[name];
  };
  function Lazy(props) {
    const [isReady, setReady] = useState(Part !== null);
    const [problem, setProblem] = useState(null);
    const [tries, setTries] = useState(0);
    useEffect(() => {
      setProblem(null);
      get().then(() => setReady(true), setProblem);
    }, [tries]);
    if (isReady) return html`<${Part} ...${props} />`;
    if (!problem) return html`<${Loading} />`;
    const action = { name: "Try again", onClick: () => setTries(tries + 1) };
    return html`<${Notice} tone="bad" action=${action}>This part of the page could not be loaded.</${Notice}>`;
  }
  Lazy.prepare = () => whenIdle(() => void get().catch(() => {}));
  return Lazy;
}
