// Keeps the newest part of a list in view, without pulling the reader away from what they read.

import { useEffect, useLayoutEffect, useRef, useState } from "../html.js";

/** Pixels from the end that still count as the end. */
const NEAR = 40;

/** Pixels above the beginning of a long answer that stay in view. */
const MARGIN = 12;

/**
 * Follow the end of `content` inside `scroller` (refs) whenever the page is drawn, until the reader scrolls away; an
 * answer longer than the view stops at its beginning (the last element with `data-latest`).
 *
 * `isBehind` says that there is something newer below; `jump` goes there, `follow` follows again, and `keep(change)`
 * makes a change above the view without moving what is in view.
 */
export function useTail() {
  const scroller = useRef();
  const content = useRef();
  const isFollowing = useRef(true);
  const set = useRef(0); // the last position that was set here
  const kept = useRef(null);
  const [isBehind, setBehind] = useState(false);

  const place = (top) => {
    const pane = scroller.current;
    pane.scrollTop = top;
    set.current = pane.scrollTop;
  };
  const end = () => scroller.current.scrollHeight - scroller.current.clientHeight;
  const target = () => {
    const latest = content.current.querySelectorAll("[data-latest]");
    const answer = latest[latest.length - 1];
    // Only what follows on the last message of a person is the newest.
    const mine = content.current.querySelectorAll(".mine");
    const question = mine[mine.length - 1];
    const isNewest =
      answer && (!question || question.compareDocumentPosition(answer) & Node.DOCUMENT_POSITION_FOLLOWING);
    return isNewest && !content.current.querySelector(".question-card")
      ? Math.min(end(), answer.offsetTop - MARGIN)
      : end();
  };
  const look = () => setBehind(end() - scroller.current.scrollTop > NEAR);
  const settle = () => {
    if (isFollowing.current) place(target());
    look();
  };

  useLayoutEffect(() => {
    if (kept.current !== null) {
      place(scroller.current.scrollHeight - kept.current);
      kept.current = null;
      look();
    } else settle();
  });
  useEffect(() => {
    const pane = scroller.current;
    const onScroll = () => {
      const isOwn = Math.abs(pane.scrollTop - set.current) < 2;
      if (!isOwn) isFollowing.current = end() - pane.scrollTop < NEAR;
      look();
    };
    pane.addEventListener("scroll", onScroll, { passive: true });
    const observer = new ResizeObserver(settle);
    observer.observe(pane);
    const growth = new ResizeObserver(look); // as when somebody unfolds the work: nothing moves then
    growth.observe(content.current);
    return () => {
      pane.removeEventListener("scroll", onScroll);
      observer.disconnect();
      growth.disconnect();
    };
  }, []);

  return {
    scroller,
    content,
    isBehind,
    jump: () => {
      isFollowing.current = true;
      place(end());
      look();
    },
    follow: () => {
      isFollowing.current = true;
      settle();
    },
    keep: (change) => {
      kept.current = scroller.current.scrollHeight - scroller.current.scrollTop;
      isFollowing.current = false;
      change();
    },
  };
}
