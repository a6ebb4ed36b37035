// Markdown as components: marked parses it, nothing here becomes HTML, so nothing needs a sanitiser.

import { prose as html, useMemo } from "../html.js";
import { lexer } from "../vendor/marked.js";
import { Code } from "./json.js";
import { Guard } from "./notice.js";

/** The level of a text's highest headings: the page has headings above them. */
const LEVEL = 3;

const SAFE = /^(https?:|mailto:)/i;

/** Return the URL if a link may lead there, else null. */
export function safeUrl(url) {
  try {
    const { href } = new URL(url);
    return SAFE.test(href) ? href : null;
  } catch {
    return null;
  }
}

const ENTITIES = { amp: "&", lt: "<", gt: ">", quot: '"', apos: "'", nbsp: "\u00a0", "#39": "'" };
const decode = (text) => text.replace(/&(#?\w+);/g, (whole, name) => ENTITIES[name] ?? whole);

function Link({ url, title, children }) {
  const href = safeUrl(url);
  if (!href) return html`<span>${children}</span>`;
  return html`<a href=${href} title=${title} target="_blank" rel="noopener noreferrer">${children}</a>`;
}

const aligned = (align) => (align ? `align-${align}` : null);

const INLINE = {
  text: (token) => (token.tokens ? inline(token.tokens) : decode(token.text)),
  escape: (token) => decode(token.text),
  strong: (token) => html`<strong>${inline(token.tokens)}</strong>`,
  em: (token) => html`<em>${inline(token.tokens)}</em>`,
  del: (token) => html`<del>${inline(token.tokens)}</del>`,
  codespan: (token) => html`<code>${token.text}</code>`,
  br: () => html`<br />`,
  link: (token) => html`<${Link} url=${token.href} title=${token.title}>${inline(token.tokens)}</${Link}>`,
  image: (token) => html`<${Link} url=${token.href} title=${token.title}>${token.text || token.href}</${Link}>`,
  html: (token) => token.raw,
};

const BLOCK = {
  space: () => null,
  hr: () => html`<hr />`,
  heading: (token, top) => html`
    <p role="heading" aria-level=${Math.min(token.depth - top + LEVEL, 6)} class=${`md-h${token.depth}`}>
      ${inline(token.tokens)}
    </p>
  `,
  paragraph: (token) => html`<p>${inline(token.tokens)}</p>`,
  text: (token) => (token.tokens ? inline(token.tokens) : decode(token.text)),
  html: (token) => html`<p>${token.raw}</p>`,
  code: (token) => html`<${Code} text=${token.text} language=${token.lang} label="Copy the code" />`,
  blockquote: (token) => html`<blockquote>${blocks(token.tokens)}</blockquote>`,
  list: (token) =>
    token.ordered
      ? html`
          <ol start=${token.start || 1}>
            ${token.items.map(item)}
          </ol>
        `
      : html`
          <ul>
            ${token.items.map(item)}
          </ul>
        `,
  table: (token) => html`
    <div class="scroll-x" tabindex="0" role="group" aria-label="Table">
      <table>
        <thead>
          <tr>
            ${token.header.map(
              (cell) => html`<th scope="col" class=${aligned(cell.align)}>${inline(cell.tokens)}</th>`,
            )}
          </tr>
        </thead>
        <tbody>
          ${token.rows.map(
            (row) => html`
              <tr>
                ${row.map((cell) => html`<td class=${aligned(cell.align)}>${inline(cell.tokens)}</td>`)}
              </tr>
            `,
          )}
        </tbody>
      </table>
    </div>
  `,
  def: () => null,
};

const item = (token) => html`
  <li class=${token.task ? "task-item" : null}>
    ${
      token.task &&
      html`
        <span class="task-box" role="img" aria-label=${token.checked ? "done" : "open"}>
          ${token.checked ? "☑" : "☐"}
        </span>
      `
    }
    ${blocks(token.tokens.filter(({ type }) => type !== "checkbox"))}
  </li>
`;

const inline = (tokens = []) => tokens.map((token) => (INLINE[token.type] ?? INLINE.html)(token));
function blocks(tokens = []) {
  const top = Math.min(...tokens.filter(({ type }) => type === "heading").map(({ depth }) => depth));
  return tokens.map((token) => (BLOCK[token.type] ?? INLINE[token.type] ?? BLOCK.html)(token, top));
}

/** Characters that are parsed of a text, and at once; marked takes a time that grows with the square of the latter. */
const MOST = 200_000;
const AT_ONCE = 16_000;

const FENCE = /^ {0,3}(`{3,}|~{3,})/;
/** The beginning of a line that nests deeper than people do, or a word that nobody writes. */
const EXTREME = /^(?:\s*(?:>|[-*+]|\d{1,9}[.)])){16}|[^\s`]{2000}/;

/** Return the parts of a text, `{text, isPlain}`: what can be parsed at once, and what is shown as it is. */
export function partsOf(text) {
  const parts = [];
  let [at, begin, fence] = [0, 0, null];
  const cut = (end, isPlain = false) => {
    if (end > begin) parts.push({ text: text.slice(begin, end), isPlain });
    begin = end;
  };
  while (at < text.length && at < MOST) {
    const end = text.indexOf("\n", at) + 1 || text.length;
    const line = text.slice(at, Math.min(end, at + AT_ONCE));
    const mark = FENCE.exec(line)?.[1];
    if (fence) {
      if (mark?.startsWith(fence) && line.trim() === mark) fence = null;
    } else if (mark) fence = mark;
    else if (line.length === AT_ONCE || EXTREME.test(line)) {
      cut(at);
      cut(end, true);
    } else if (end - begin > AT_ONCE || (end - begin > AT_ONCE / 2 && !line.trim())) cut(at);
    at = end;
  }
  cut(at);
  cut(text.length, true);
  return parts;
}

const Plain = ({ text }) => html`<p class="preserved">${text}</p>`;
const Parsed = ({ text }) => blocks(lexer(text, { gfm: true, breaks: true }));

/**
 * A text in Markdown. Single line breaks stay, as people and models mean them. What can't be parsed is shown as it
 * is.
 */
export function Markdown({ text }) {
  return useMemo(
    () => html`
      <div class="markdown">
        ${partsOf(text).map((part, n) =>
          part.isPlain
            ? html`<${Plain} text=${part.text} />`
            : html`
                <${Guard}
                  key=${n}
                  version=${part.text}
                  instead=${html`<${Plain} text=${part.text} />`}>
                  <${Parsed} text=${part.text} />
                </${Guard}>
              `,
        )}
      </div>
    `,
    [text],
  );
}
