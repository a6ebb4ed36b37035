// State outside the page that components show.

import { useLayoutEffect, useState } from "../html.js";

const nextFrame = globalThis.requestAnimationFrame ?? ((work) => setTimeout(work, 16));

/** State that tells its listeners of its changes, at most once per animation frame. */
export class Store {
  version = 0;
  #listeners = new Set();
  #isScheduled = false;

  /** Call `listener` after changes; returns the function that ends this. */
  subscribe(listener) {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  changed() {
    this.version += 1;
    if (this.#isScheduled) return;
    this.#isScheduled = true;
    nextFrame(() => {
      this.#isScheduled = false;
      for (const listener of [...this.#listeners]) listener();
    });
  }
}

/** Render the component again whenever the store (or null) has changed. */
export function useStore(store) {
  const [, setVersion] = useState(0);
  useLayoutEffect(() => {
    if (!store) return undefined;
    setVersion(store.version);
    return store.subscribe(() => setVersion(store.version));
  }, [store]);
  return store;
}
