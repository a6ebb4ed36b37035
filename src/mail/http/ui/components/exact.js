// Arguments exactly as the server has them: what is approved is what was shown.

const DIGITS = 15; // of a number that JavaScript keeps

/** Return the value of JSON text, in which numbers that JavaScript would change keep their digits. */
export function exactJson(text) {
  return JSON.parse(text, (_, value, context) => {
    if (typeof value !== "number" || !context?.source) return value;
    const digits = context.source
      .replace(/[eE].*$/, "")
      .replace(/\D/g, "")
      .replace(/^0+/, "");
    return digits.length > DIGITS || !Number.isFinite(value) ? JSON.rawJSON(context.source) : value;
  });
}

const PRIMES = Array.from({ length: 320 }, (_, n) => n)
  .filter((n) => n > 1 && !Array.from({ length: n }, (_, k) => k).some((k) => k > 1 && n % k === 0))
  .slice(0, 64);
const fraction = (root) => ((root - Math.floor(root)) * 2 ** 32) | 0;
const K = PRIMES.map((prime) => fraction(Math.cbrt(prime)));
const turn = (word, by) => (word >>> by) | (word << (32 - by));

/** Return the SHA-256 of a text in hexadecimal. Browsers have their own only on https and localhost. */
export function sha256(text) {
  const bytes = new TextEncoder().encode(text);
  const blocks = (bytes.length + 72) >> 6;
  const view = new DataView(new ArrayBuffer(blocks * 64));
  bytes.forEach((byte, at) => view.setUint8(at, byte));
  view.setUint8(bytes.length, 0x80);
  view.setUint32(blocks * 64 - 4, bytes.length * 8);
  const hash = PRIMES.slice(0, 8).map((prime) => fraction(Math.sqrt(prime)));
  const words = new Int32Array(64);
  for (let block = 0; block < blocks; block += 1) {
    let [a, b, c, d, e, f, g, h] = hash;
    for (let n = 0; n < 64; n += 1) {
      if (n < 16) words[n] = view.getInt32(block * 64 + n * 4);
      else {
        const [early, late] = [words[n - 15], words[n - 2]];
        words[n] =
          words[n - 16] +
          (turn(early, 7) ^ turn(early, 18) ^ (early >>> 3)) +
          words[n - 7] +
          (turn(late, 17) ^ turn(late, 19) ^ (late >>> 10));
      }
      const one = (h + (turn(e, 6) ^ turn(e, 11) ^ turn(e, 25)) + ((e & f) ^ (~e & g)) + K[n] + words[n]) | 0;
      const two = ((turn(a, 2) ^ turn(a, 13) ^ turn(a, 22)) + ((a & b) ^ (a & c) ^ (b & c))) | 0;
      [a, b, c, d, e, f, g, h] = [(one + two) | 0, a, b, c, (d + one) | 0, e, f, g];
    }
    [a, b, c, d, e, f, g, h].forEach((word, at) => (hash[at] = (hash[at] + word) | 0));
  }
  return hash.map((word) => (word >>> 0).toString(16).padStart(8, "0")).join("");
}
