// What a message says around the words of a search.

import { html } from "../html.js";
import { visible } from "./visible.js";

/** Every second piece is one of the words. Without pieces, nothing is shown. */
export const Excerpt = ({ pieces }) =>
  pieces &&
  html`
    <span class="excerpt">
      ${pieces.map((piece, n) => (n % 2 ? html`<mark key=${n}>${visible(piece)}</mark>` : visible(piece)))}
    </span>
  `;
