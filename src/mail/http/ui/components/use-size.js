// The size of what is shown.

import { useLayoutEffect, useRef, useState } from "../html.js";

/** Return a reference for an element, and its size in pixels as it changes: `[ref, {width, height}]`, null at first. */
export function useSize() {
  const ref = useRef();
  const [size, setSize] = useState(null);
  useLayoutEffect(() => {
    const read = () => {
      const { clientWidth: width, clientHeight: height } = ref.current;
      setSize((old) => (old?.width === width && old?.height === height ? old : { width, height }));
    };
    read();
    const observer = new ResizeObserver(read);
    observer.observe(ref.current);
    return () => observer.disconnect();
  }, []);
  return [ref, size];
}
