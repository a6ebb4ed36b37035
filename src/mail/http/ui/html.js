// Preact, its hooks and htm in one place: `html` is a template that makes components, without a build step.

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

export const html = htm.bind(h);
