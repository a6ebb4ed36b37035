// Data as text.

/** Return a value, or JSON text, as indented JSON; other text as it stands. */
export function pretty(value) {
  if (typeof value !== "string") return JSON.stringify(value, null, 2);
  try {
    return JSON.stringify(JSON.parse(value), null, 2);
  } catch {
    return value;
  }
}
