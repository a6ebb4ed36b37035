// Data as text.

import { visible } from "./visible.js";

/** Return a value, or JSON text, as indented JSON in which nothing is hidden; other text as it stands. */
export function pretty(value) {
  if (typeof value !== "string") return visible(JSON.stringify(value, null, 2));
  try {
    return visible(JSON.stringify(JSON.parse(value), null, 2));
  } catch {
    return value;
  }
}
