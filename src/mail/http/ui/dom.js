// Elements from data. Text becomes text nodes only: nothing that a server or an agent says is ever read as HTML.

const SVG = "http://www.w3.org/2000/svg";

function build(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (value === true) element.setAttribute(name, "");
    else if (value !== false && value != null) element.setAttribute(name, String(value));
  }
  element.append(...children.flat().filter((child) => child != null && child !== false));
  return element;
}

/** An element; `on…` attributes are listeners, children are nodes or text. */
export const h = (tag, attributes = {}, ...children) =>
  build(document.createElement(tag), attributes, children);

/** An SVG element. */
export const svg = (tag, attributes = {}, ...children) =>
  build(document.createElementNS(SVG, tag), attributes, children);

/** The page's element with this id. */
export const $ = (id) => document.getElementById(id);

/** A part that opens, with `text` as it stands. */
export const fold = (title, text) => h("details", {}, h("summary", {}, title), h("pre", {}, text));

/** Data for people to read. */
export const pretty = (value) => (typeof value === "string" ? value : JSON.stringify(value, null, 2));
