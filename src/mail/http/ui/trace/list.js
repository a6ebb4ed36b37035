// A long list of which only the visible rows are in the document.

import { Guard } from "../components/notice.js";
import { html, useEffect, useLayoutEffect, useMemo, useReducer, useRef } from "../html.js";
import { Virtualizer, elementScroll, observeElementOffset, observeElementRect } from "../vendor/virtual-core.js";

/** Rows beside the visible ones. */
const OVERSCAN = 8;

/** Pixels from the end within which the list stays at its end when it grows. */
const NEAR = 40;

const PAGE = 12;

function useVirtualizer(scroller, count, rowHeight) {
  const [, render] = useReducer((n) => n + 1, 0);
  const options = {
    count,
    getScrollElement: () => scroller.current,
    estimateSize: () => rowHeight,
    observeElementRect,
    observeElementOffset,
    scrollToFn: elementScroll,
    overscan: OVERSCAN,
    onChange: () => render(),
  };
  const virtualizer = useMemo(() => new Virtualizer(options), []);
  virtualizer.setOptions(options);
  useLayoutEffect(() => virtualizer._didMount(), []);
  useLayoutEffect(() => virtualizer._willUpdate());
  useLayoutEffect(() => virtualizer.measure(), [rowHeight]);
  return virtualizer;
}

/** Words for those who don't see the row: they stand between what is visible. */
export const Said = ({ children }) => html`<span class="hidden-label">${children}</span>`;

/** A cell of a row: `said` stands before its `text`, for those who don't see the row; an empty one says nothing. */
export const Cell = ({ class: name, said = ", ", text, children }) => html`
  <span class=${name}>
    ${
      text &&
      html`
        <${Said}>${said}</${Said}>
        ${text}
      `
    }${children}
  </span>
`;

/** The number of an entry; `then` is said after it. */
export const Seq = ({ seq, then = ", " }) => html`
  <span class="span-number">
    <${Said}>${seq === null ? "Now" : "Entry "}</${Said}>
    ${seq ?? ""}
    <${Said}>${then}</${Said}>
  </span>
`;

/**
 * A list of `count` rows of `rowHeight` pixels, as a listbox or a tree.
 *
 * `row(index)` returns `{id, key, class, content, attributes}` of a row, whose words are its name; `current` is the
 * index of the row with the cursor, which arrow keys move (`onMove`), and `onOpen` is called for Enter and a click.
 * `onKey(event, index)` may take further keys and then returns true. `follows` keeps the end of a growing list in
 * view; `onRange(first, last)` tells which rows are visible.
 */
export function VirtualList({
  count,
  rowHeight,
  row,
  current,
  onMove,
  onOpen,
  onKey,
  onRange,
  label,
  role = "listbox",
  follows = false,
  id,
  class: name = "",
}) {
  const scroller = useRef();
  const virtualizer = useVirtualizer(scroller, count, rowHeight);
  const items = virtualizer.getVirtualItems();
  const [first, last] = [items[0]?.index ?? 0, items.at(-1)?.index ?? 0];
  useEffect(() => onRange?.(first, last), [first, last, count]);

  const wasAtEnd = useRef(true);
  const onScroll = () => {
    const { scrollTop, clientHeight, scrollHeight } = scroller.current;
    wasAtEnd.current = scrollHeight - scrollTop - clientHeight < NEAR;
  };
  useLayoutEffect(() => {
    if (follows && wasAtEnd.current && count) virtualizer.scrollToIndex(count - 1, { align: "end" });
  }, [count, follows]);

  const shown = useRef(null);
  useLayoutEffect(() => {
    if (current === null || current === shown.current) return;
    shown.current = current;
    virtualizer.scrollToIndex(current, { align: "auto" });
  }, [current]);

  const onKeyDown = (event) => {
    if (event.altKey || event.ctrlKey || event.metaKey || !count) return;
    const at = current ?? -1;
    if (onKey?.(event, at)) return void event.preventDefault();
    const to = {
      ArrowDown: at + 1,
      ArrowUp: at < 0 ? count - 1 : at - 1,
      PageDown: at + PAGE,
      PageUp: at - PAGE,
      Home: 0,
      End: count - 1,
    }[event.key];
    if (to !== undefined) {
      event.preventDefault();
      onMove(Math.min(count - 1, Math.max(0, to)));
    } else if ((event.key === "Enter" || event.key === " ") && at >= 0) {
      event.preventDefault();
      onOpen(at);
    }
  };
  const isTree = role === "tree";
  const rows = items.map(({ index, start }) => {
    const { id: rowId, key, class: rowClass = "", content, attributes = {} } = row(index);
    return html`
      <div
        key=${key}
        id=${rowId}
        role=${isTree ? "treeitem" : "option"}
        class=${`list-row ${rowClass} ${index === current ? "current" : ""}`}
        aria-selected=${String(index === current)}
        aria-posinset=${index + 1}
        aria-setsize=${count}
        ...${attributes}
        style=${{ transform: `translateY(${start}px)`, height: `${rowHeight}px` }}
        onClick=${() => (onMove(index), onOpen(index))}>
        <${Guard} instead="This entry can't be shown." version=${content}>${content}</${Guard}>
      </div>
    `;
  });
  const active = items.some(({ index }) => index === current) ? row(current).id : null;
  return html`
    <div
      ref=${scroller}
      id=${id}
      class=${`list-scroller ${name}`}
      role=${role}
      aria-label=${label}
      tabindex="0"
      aria-activedescendant=${active}
      onKeyDown=${onKeyDown}
      onScroll=${onScroll}>
      <div class="list-space" role="presentation" style=${{ height: `${virtualizer.getTotalSize()}px` }}>${rows}</div>
    </div>
  `;
}
