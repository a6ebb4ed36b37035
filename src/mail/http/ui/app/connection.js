// Whether the server can be reached, and what it says of itself.

import * as api from "../api/api.js";
import { isVisible, pauseAfter } from "./poll.js";
import { Store } from "./store.js";

/**
 * Milliseconds after which an unreachable server is asked again, later less often, and after which the status is read
 * again.
 */
const RETRY = 2_000;
const REFRESH = 15_000;

/** So many attempts follow quickly. */
const QUICK_ATTEMPTS = 5;

export class Connection extends Store {
  isOffline = false;
  status = ""; // of `GET /health`
  #timer = null;
  #onBack = () => {};
  #stop = null;
  #failures = 0; // in a row

  /** Begin; `onBack` is called when the server answers again. Returns the function that ends it. */
  start(onBack) {
    const stop = (this.#stop = new AbortController());
    const { signal } = stop;
    this.#onBack = onBack;
    api.listen((isReached) => this.#heard(isReached));
    globalThis.addEventListener("offline", () => this.#heard(false), { signal });
    for (const sign of ["online", "focus", "visibilitychange"])
      globalThis.addEventListener(sign, () => this.#look(), { signal });
    this.#look();
    return () => {
      stop.abort();
      clearTimeout(this.#timer);
      api.listen(() => {});
      Object.assign(this, { isOffline: false, status: "" }).changed();
    };
  }

  #heard(isReached) {
    if (isReached !== this.isOffline) return;
    this.isOffline = !isReached;
    this.changed();
    if (isReached) this.#onBack();
    this.#schedule();
  }

  #schedule() {
    clearTimeout(this.#timer);
    if (this.#stop.signal.aborted) return;
    if (!isVisible()) return; // it is read when it is visible again
    const retry = Math.min(REFRESH, pauseAfter(Math.max(0, this.#failures - QUICK_ATTEMPTS), RETRY));
    this.#timer = setTimeout(() => this.#look(), this.isOffline ? retry : REFRESH);
  }

  async #look() {
    if (isVisible()) {
      try {
        const { status } = await api.health();
        this.#failures = 0;
        if (status !== this.status) {
          this.status = status;
          this.changed();
        }
      } catch {
        this.#failures += 1; // `#heard` has taken note of it
      }
    }
    this.#schedule();
  }
}
