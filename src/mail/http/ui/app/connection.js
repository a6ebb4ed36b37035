// Whether the server can be reached, and what it says of itself.

import * as api from "../api/api.js";
import { Store } from "./store.js";

/** Milliseconds after which an unreachable server is asked again, and after which the status is read again. */
const RETRY = 2_000;
const REFRESH = 15_000;

export class Connection extends Store {
  isOffline = false;
  status = ""; // of `GET /health`
  #timer = null;
  #onBack = () => {};

  /** Begin; `onBack` is called when the server answers again. */
  start(onBack) {
    this.#onBack = onBack;
    api.listen((isReached) => this.#heard(isReached));
    globalThis.addEventListener("offline", () => this.#heard(false));
    for (const sign of ["online", "focus", "visibilitychange"]) globalThis.addEventListener(sign, () => this.#look());
    this.#look();
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
    this.#timer = setTimeout(() => this.#look(), this.isOffline ? RETRY : REFRESH);
  }

  async #look() {
    if (document.visibilityState === "visible") {
      try {
        const { status } = await api.health();
        if (status !== this.status) {
          this.status = status;
          this.changed();
        }
      } catch {
        // `#heard` has taken note of it.
      }
    }
    this.#schedule();
  }
}
