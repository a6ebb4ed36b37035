// Numbers in words, and words that are searched for.

export const count = (number) => number.toLocaleString("en");

/** Return a number with its noun: `1 turn`, `1,200 turns`. */
export const plural = (number, one, many = `${one}s`) => `${count(number)} ${number === 1 ? one : many}`;

/** Return what tells whether a text has all words of a query, in upper or lower case. */
export function matcher(query) {
  const wanted = query.toLowerCase().split(/\s+/).filter(Boolean);
  return (text) => {
    const found = text.toLowerCase();
    return wanted.every((word) => found.includes(word));
  };
}
