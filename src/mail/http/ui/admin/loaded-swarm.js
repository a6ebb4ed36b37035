// The swarm that the server runs: change it, check it, load it.

import { token } from "../api/api.js";
import { WorkButton } from "../components/button.js";
import { ConfirmButton } from "../components/dialog.js";
import { Notice } from "../components/notice.js";
import { useData } from "../components/use-data.js";
import { plural } from "../components/words.js";
import { html, useEffect, useRef, useState } from "../html.js";
import { locate } from "./json-path.js";
import { Command, Page, perform, useNotice } from "./page.js";
import { checkSwarm, dumpSwarm, loadSwarm } from "./requests.js";

/** The factory of an agent that is built in Python (`BUILT_IN_PYTHON`). */
const BUILT = '"(built in Python)"';

const HIDDEN = '"(hidden)"';
const LOAD = "mail client\nswarm-load-from-json @swarm.json";
const format = (swarm) => JSON.stringify(swarm, null, 2);

export function LoadedSwarm() {
  const data = useData(dumpSwarm);
  return html`
    <${Page}
      title="Loaded swarm"
      about="The swarm that runs, as an entry of swarms.json. Tasks continue with the new one from their next turn."
      data=${data}>
      ${(swarm) => html`<${Editor} swarm=${swarm} reload=${data.reload} />`}
    </${Page}>
  `;
}

function Editor({ swarm, reload }) {
  const [text, setText] = useState(format(swarm));
  const [checked, setChecked] = useState(null);
  const [notice, say] = useNotice();
  const editor = useRef();
  useEffect(() => setText(format(swarm)), [swarm]);
  const edit = (event) => {
    setText(event.currentTarget.value);
    setChecked(null);
  };
  const check = () =>
    perform(
      say,
      () => checkSwarm(text),
      (result) => {
        setChecked(result);
        return "";
      },
    );
  const load = async () => {
    setChecked(null);
    const isLoaded = await perform(
      say,
      () => loadSwarm(text),
      ({ swarm_name: name }) => `${name} is loaded. Running tasks do what its on_update says.`,
    );
    if (isLoaded) await reload();
  };
  const show = ([start, end]) => {
    const field = editor.current;
    field.focus();
    field.setSelectionRange(start, end);
    const lines = field.value.split("\n").length;
    field.scrollTop =
      (field.scrollHeight * (field.value.slice(0, start).split("\n").length - 1)) / lines - field.clientHeight / 2;
  };
  const found = useRef();
  useEffect(() => {
    if (checked) found.current.scrollIntoView({ block: "nearest" });
  }, [checked]);
  const isBuilt = text.includes(BUILT);
  const isChanged = text !== format(swarm);
  const hidden = text.split(HIDDEN).length - 1;
  return html`
    ${
      isBuilt &&
      html`
        <${Notice} tone="plain" title="This swarm is built in Python.">
          It can't be loaded from here. Change it in its program, or try another prompt in a draft: open a turn in the
          trace of a task, then Setup.
        </${Notice}>
      `
    }
    ${
      hidden > 0 &&
      html`
        <${Notice} tone="warn">
          ${hidden === 1 ? "One value looks" : `${hidden} values look`} like a secret
          and ${hidden === 1 ? "is" : "are"} shown as (hidden). Write ${hidden === 1 ? "the value" : "the values"} or
          remove the ${hidden === 1 ? "key" : "keys"} before you load the swarm.
        </${Notice}>
      `
    }
    <div class="field">
      <label for="swarm-text">swarms.json entry</label>
      <textarea
        id="swarm-text"
        ref=${editor}
        class="mono swarm-text"
        spellcheck="false"
        autocomplete="off"
        aria-describedby="swarm-found"
        value=${text}
        onInput=${edit}></textarea>
    </div>
    <div class="row">
      <${WorkButton} disabled=${isBuilt} onClick=${check}>Check</${WorkButton}>
      ${
        !token.isSession &&
        html`
          <${ConfirmButton}
            label="Load…"
            class="button primary"
            disabled=${!isChanged || isBuilt}
            title="Load this swarm?"
            action="Load"
            onConfirm=${load}>
            <p>
              It replaces the swarm that runs, in every process of this server. Running tasks continue with it from
              their next turn, unless its on_update is "finish".
            </p>
            <p>It stays until another one is loaded or the configured swarm changes.</p>
          </${ConfirmButton}>
        `
      }
      <button
        type="button"
        class="button quiet-button"
        disabled=${!isChanged}
        onClick=${() => (setText(format(swarm)), setChecked(null))}>
        Discard the changes
      </button>
    </div>
    ${
      token.isSession &&
      !isBuilt &&
      html`
        <p class="quiet small-text">
          A browser's session can't load a swarm, as that would outlive it. Save the entry to a file.
        </p>
        <${Command} text=${LOAD} />
      `
    }
    ${notice}
    <div id="swarm-found" ref=${found} aria-live="polite">
      ${checked && html`<${Checked} checked=${checked} text=${text} show=${show} />`}
    </div>
  `;
}

/** `show(span)` selects a part of the text. */
function Checked({ checked, text, show }) {
  if (checked.valid)
    return html`
      <${Notice} tone="good" title="This swarm can be loaded.">Agents: ${checked.agents.join(", ")}</${Notice}>
    `;
  return html`
    <${Notice} tone="bad" title=${plural(checked.problems.length, "problem")}>
      <ul class="problems">
        ${checked.problems.map(
          ({ path, problem }) => html`
            <li>
              <${Place} path=${path} span=${path && locate(text, path)} show=${show} />
              ${" "}${problem}
            </li>
          `,
        )}
      </ul>
    </${Notice}>
  `;
}

/** The path of a problem; a click leads to its place in the text. */
function Place({ path, span, show }) {
  if (!path) return "The text";
  if (!span) return html`<code>${path}</code>`;
  return html`
    <button type="button" class="link-button" title="Show it in the text" onClick=${() => show(span)}>
      <code>${path}</code>
    </button>
  `;
}
