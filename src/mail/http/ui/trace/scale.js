// The time axis: from times to positions between 0 and 1, with long pauses cut short.

/** Pauses longer than this share of all work, and than so many milliseconds, are cut short. */
const SHARE = 0.3;
const PAUSE = 2_000;

/** The width of a pause that is cut short. */
const CUT = 0.04;

/** Milliseconds of an axis at least. */
const SHORTEST = 1;

/** Merge the times of spans into stretches without a pause. */
function stretches(spans, now) {
  const work = spans
    .filter(({ kind }) => kind !== "wait")
    .map((span) => [span.begin, span.end ?? now])
    .sort((a, b) => a[0] - b[0]);
  const merged = [];
  for (const [begin, end] of work) {
    const last = merged.at(-1);
    if (last && begin <= last[1]) last[1] = Math.max(last[1], end);
    else merged.push([begin, Math.max(begin, end)]);
  }
  return merged;
}

/**
 * Return `{position, invert, pauses}` for spans: `position(time)` is between 0 and 1, `invert` its inverse, and
 * `pauses` lists what is cut short as `{at, width, seconds}`. `now` ends the spans that last.
 */
export function makeScale(spans, now) {
  const work = stretches(spans, now);
  if (!work.length) return { position: () => 0, invert: () => 0, pauses: [], begin: 0, end: 0 };
  const begin = work[0][0];
  const end = Math.max(begin + SHORTEST, work.at(-1)[1]);
  const busy = work.reduce((sum, [from, to]) => sum + to - from, 0);
  const limit = Math.max(PAUSE, SHARE * busy);
  const pieces = []; // [begin, end, isCut]
  let from = begin;
  for (let n = 1; n < work.length; n += 1) {
    if (work[n][0] - work[n - 1][1] <= limit) continue;
    pieces.push([from, work[n - 1][1], false], [work[n - 1][1], work[n][0], true]);
    from = work[n][0];
  }
  pieces.push([from, end, false]);
  const cuts = pieces.filter(([, , isCut]) => isCut).length;
  const cut = cuts ? Math.min(CUT, 0.5 / cuts) : 0;
  const shown = pieces.reduce((sum, [from, to, isCut]) => sum + (isCut ? 0 : to - from), 0) || SHORTEST;
  const room = 1 - cut * cuts;
  let x = 0;
  const mapped = pieces.map(([from, to, isCut]) => {
    const width = isCut ? cut : ((to - from) / shown) * room;
    const piece = { from, to, x, width, isCut };
    x += width;
    return piece;
  });
  const position = (time) => {
    const piece = mapped.findLast(({ from }) => time >= from) ?? mapped[0];
    const part = piece.to > piece.from ? (time - piece.from) / (piece.to - piece.from) : 0;
    return Math.min(1, Math.max(0, piece.x + piece.width * Math.min(1, part)));
  };
  const invert = (at) => {
    const piece = mapped.findLast(({ x }) => at >= x) ?? mapped[0];
    return piece.width ? piece.from + ((at - piece.x) / piece.width) * (piece.to - piece.from) : piece.from;
  };
  const pauses = mapped
    .filter(({ isCut }) => isCut)
    .map(({ x, width, from, to }) => ({ at: x, width, seconds: (to - from) / 1000 }));
  return { position, invert, pauses, begin, end };
}

const STEPS = [1, 2, 5];

/**
 * Return about `count` ticks `{at, seconds}` of an axis: round numbers of seconds after `zero`, none in or near a
 * pause.
 */
export function ticksOf(scale, zero, count = 6) {
  if (scale.end <= scale.begin) return [];
  if (scale.pauses.length) {
    const edges = [0, ...scale.pauses.map(({ at, width }) => at + width)];
    let last = -1;
    return edges
      .filter((at) => at <= 1 - 0.5 / count && at - last >= 0.9 / count && ((last = at), true))
      .map((at) => ({ at, seconds: (scale.invert(at + 1e-9) - zero) / 1000 }));
  }
  const length = (scale.end - scale.begin) / 1000;
  const rough = Math.max(0.001, length / count); // labels show whole milliseconds
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = STEPS.map((each) => each * power).find((each) => each >= rough) ?? 10 * power;
  const ticks = [];
  for (let n = Math.ceil((scale.begin - zero) / 1000 / step - 1e-9); ticks.length < 20; n += 1) {
    const seconds = Number((n * step).toPrecision(12));
    const at = scale.position(zero + seconds * 1000);
    if (zero + seconds * 1000 > scale.end || at > 1 - 0.5 / count) break;
    ticks.push({ at, seconds });
  }
  return ticks;
}
