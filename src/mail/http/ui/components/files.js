// The files of messages: pictures are shown, the others can be saved. Both are fetched with the token of the tab.

import * as api from "../api/api.js";
import { html, useEffect, useState } from "../html.js";
import { IconButton } from "./button.js";
import { Icon } from "./icons.js";

/** Types that are shown. */
const PICTURES = new Set(["image/png", "image/jpeg", "image/gif", "image/webp"]);

/** Return a number of bytes in words. */
export const sizeOf = (bytes) =>
  bytes < 1e3 ? `${bytes} B` : bytes < 1e6 ? `${Math.round(bytes / 1e3)} kB` : `${(bytes / 1e6).toFixed(1)} MB`;

/** Let the browser save a Blob under a name. */
export function saveAs(blob, name) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(blob);
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 60_000);
}

const save = async ({ id, name }) => saveAs(await api.file(id), name);

/** A file that the reader can't fetch. */
const Named = ({ file }) => html`
  <span class="file">
    <${Icon} name="file" />
    <span class="file-name">${file.name}</span>
    <span class="file-size">${sizeOf(file.bytes)}</span>
  </span>
`;

function Saved({ file }) {
  const [problem, setProblem] = useState(null);
  const onClick = () => save(file).then(() => setProblem(null), setProblem);
  return html`
    <button type="button" class="button small file" title=${`Save ${file.name}`} onClick=${onClick}>
      <${Icon} name="file" />
      <span class="file-name">${file.name}</span>
      <span class="file-size">${problem ? problem.message : sizeOf(file.bytes)}</span>
    </button>
  `;
}

function Picture({ file }) {
  const [url, setUrl] = useState(null);
  const [isBroken, setBroken] = useState(false);
  useEffect(() => {
    let made = null;
    let isGone = false;
    api.file(file.id).then(
      (blob) => {
        if (!isGone) setUrl((made = URL.createObjectURL(blob)));
      },
      () => setBroken(true),
    );
    return () => {
      isGone = true;
      if (made) URL.revokeObjectURL(made);
    };
  }, [file.id]);
  if (isBroken) return html`<${Saved} file=${file} />`;
  return html`
    <button type="button" class="picture" title=${`Save ${file.name}`} onClick=${() => save(file)}>
      ${url && html`<img src=${url} alt=${file.name} onError=${() => setBroken(true)} />`}
    </button>
  `;
}

/** The files of a message, as references. */
export function Files({ files }) {
  if (!files?.length) return null;
  return html`
    <ul class="files" aria-label="Files">
      ${files.map(
        (file) => html`
          <li key=${file.id}>
            ${
              !file.id
                ? html`<${Named} file=${file} />`
                : PICTURES.has(file.type)
                  ? html`<${Picture} file=${file} />`
                  : html`<${Saved} file=${file} />`
            }
          </li>
        `,
      )}
    </ul>
  `;
}

/** The files of a message that is being written; `onRemove(file)` takes one away. */
export function Attached({ files, onRemove }) {
  if (!files.length) return null;
  return html`
    <ul class="files attached" aria-label="Files of the message">
      ${files.map(
        (file) => html`
          <li key=${file.id} class="file">
            <${Icon} name="file" />
            <span class="file-name">${file.name}</span>
            <span class="file-size">${sizeOf(file.bytes)}</span>
            <${IconButton} icon="close" label=${`Remove ${file.name}`} onClick=${() => onRemove(file)} />
          </li>
        `,
      )}
    </ul>
  `;
}
