// Preact, its hooks and htm in one place: `html` is a template that makes components, without a build step.

import { turns, visible } from "./components/visible.js";
import htm from "./vendor/htm.js";
import { h } from "./vendor/preact.js";

export { Component, Fragment, createContext, createRef, h, render } from "./vendor/preact.js";
export {
  useCallback,
  useContext,
  useEffect,
  useErrorBoundary,
  useId,
  useLayoutEffect,
  useMemo,
  useReducer,
  useRef,
  useState,
} from "./vendor/preact-hooks.js";

/** Elements whose content is text alone. */
const TEXT_ONLY = new Set(["bdi", "desc", "option", "style", "text", "textarea", "title", "tspan"]);

/**
 * Return a child of an element: a text shows what is hidden in it, and is isolated if its direction could move
 * others.
 */
function shown(child, type) {
  if (Array.isArray(child)) return child.map((each) => shown(each, type));
  if (typeof child !== "string") return child;
  const text = visible(child);
  return typeof type === "string" && !TEXT_ONLY.has(type) && turns(text) ? h("bdi", null, text) : text;
}

/** Templates in which every text, title and label is visible. */
export const html = htm.bind((type, props, ...children) => {
  if (typeof type === "string" && props) {
    for (const name of ["title", "aria-label"]) if (typeof props[name] === "string") props[name] = visible(props[name]);
  }
  return h(type, props, ...children.map((child) => shown(child, type)));
});

/** Templates for what people and agents write to be read, as it is. */
export const prose = htm.bind(h);
