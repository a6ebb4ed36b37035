// What the pages for administrators share: their frame, tables and messages.

import { token } from "../api/api.js";
import { CopyButton } from "../components/button.js";
import { Confirm } from "../components/dialog.js";
import { TextField } from "../components/field.js";
import { Loading, Notice } from "../components/notice.js";
import { html, useState } from "../html.js";

/** The frame of a page. `data` is that of `useData`; `children` is a function that shows it. */
export function Page({ title, about, data, children }) {
  const { data: loaded, problem, reload } = data;
  return html`
    <div class="admin-page">
      <div class="admin-title">
        <h2>${title}</h2>
        ${about && html`<p class="quiet">${about}</p>`}
      </div>
      ${
        problem &&
        html`
          <${Notice}
            tone=${problem.status === 404 ? "plain" : "bad"}
            action=${problem.permanent ? null : { name: "Try again", onClick: reload }}>
            ${problem.message}
          </${Notice}>
        `
      }
      ${loaded !== null ? children(loaded) : !problem && html`<${Loading} />`}
    </div>
  `;
}

/**
 * A table: `columns` are `[title, class]`, `rows` are `[key, …cells]`. The first cell names its row. Where there is
 * little room, each row is a card (which is why the roles are spelt out: browsers drop them when CSS changes how a
 * table is shown). Without rows, `none` takes its place.
 */
export function Table({ label, columns, rows, none }) {
  if (!rows.length && none) return none;
  const cell = (content, [title, name = ""], at) =>
    at === 0
      ? html`<th role="rowheader" scope="row" class=${name}>${content}</th>`
      : html`<td role="cell" class=${name} data-title=${title}><div>${content}</div></td>`;
  return html`
    <div class="admin-table">
      <table role="table" aria-label=${label}>
        <thead role="rowgroup">
          <tr role="row">
            ${columns.map(
              ([title, name]) => html`
                <th role="columnheader" scope="col" class=${name}>
                  ${title || html`<span class="hidden-label">Actions</span>`}
                </th>
              `,
            )}
          </tr>
        </thead>
        <tbody role="rowgroup">
          ${rows.map(
            ([key, ...cells]) => html`
              <tr role="row" key=${key}>${cells.map((content, at) => cell(content, columns[at], at))}</tr>
            `,
          )}
        </tbody>
      </table>
    </div>
  `;
}

/** A second line of a cell. */
export const Small = ({ children }) => html`<span class="quiet small-text second">${children}</span>`;

/** A button in a row; `label` says what it does to which row. */
export const RowButton = ({ label, onClick, children }) => html`
  <button type="button" class="button small" aria-label=${label} onClick=${onClick}>${children}</button>
`;

/** A button for more rows, if there are more. */
export const More = ({ hasMore, onClick }) =>
  hasMore && html`<button type="button" class="button small" onClick=${onClick}>Show more</button>`;

/**
 * Return `[said, say]`: `said` is a notice (or null) with what became of an action; `say(text, {tone, more})` sets
 * it.
 */
export function useNotice() {
  const [said, setSaid] = useState(null);
  const say = (text, { tone = "good", more } = {}) => setSaid(text && { text, tone, more });
  const notice = html`
    <div class="admin-said" aria-live="polite">
      ${
        said &&
        html`
          <${Notice} tone=${said.tone} title=${said.text} action=${{ name: "Close", onClick: () => say("") }}>
            ${said.more}
          </${Notice}>
        `
      }
    </div>
  `;
  return [notice, say];
}

/** Perform an action of a form or dialog, and say what became of it. Returns whether it has worked. */
export async function perform(say, action, done) {
  say("");
  try {
    const result = await action();
    say(...[done(result)].flat());
    return true;
  } catch (problem) {
    say(problem.message, { tone: "bad" });
    return false;
  }
}

/**
 * Return what can be done on a page with this `data`, which is loaded again afterwards: `act(action, done)` performs an
 * action and says what became of it, `ask(question, action, done)` does so once the reader has confirmed it (`question`
 * has the properties of `Confirm`). `said` shows both; `say` is that of `useNotice`.
 */
export function useActs(data) {
  const [notice, say] = useNotice();
  const [asked, setAsked] = useState(null);
  const act = async (action, done) => {
    setAsked(null);
    await perform(say, action, done);
    await data.reload();
  };
  const ask = (question, action, done) => setAsked({ question, action, done });
  const said = html`
    ${notice}
    ${
      asked &&
      html`
        <${Confirm}
          ...${asked.question}
          onClose=${() => setAsked(null)}
          onConfirm=${() => void act(asked.action, asked.done)} />
      `
    }
  `;
  return { said, say, act, ask };
}

/**
 * A part of a page that is folded until one wants to add something: a form or, for a browser's session, which may
 * make nothing that outlives it, the command to run instead.
 */
export function Adding({ title, command, children }) {
  return html`
    <details class="card adding">
      <summary>${title}</summary>
      ${children && !token.isSession ? children : html`<${Command} text=${command} />`}
    </details>
  `;
}

/**
 * A form that registers something: `fields` are pairs of a name and the properties of its `TextField`, and `children`
 * come after these. `register(typed)` gets what was typed, and `onDone` what it returns.
 */
export function AddForm({ id, fields, register, onDone, children }) {
  const [given, setGiven] = useState({});
  const [notice, say] = useNotice();
  const onSubmit = (event) => {
    event.preventDefault();
    const typed = fields.map(([name]) => [name, given[name]?.trim()]).filter(([, text]) => text);
    void perform(
      say,
      () => register(Object.fromEntries(typed)),
      (done) => {
        setGiven({});
        onDone(done);
        return "";
      },
    );
  };
  return html`
    <form class="admin-form" onSubmit=${onSubmit}>
      ${fields.map(
        ([name, others]) => html`
          <${TextField}
            key=${name}
            id=${`${id}-${name}`}
            spellcheck="false"
            autocomplete="off"
            value=${given[name] ?? ""}
            onType=${(text) => setGiven((before) => ({ ...before, [name]: text }))}
            ...${others} />
        `,
      )}
      ${children}
      <button type="submit" class="button primary">Register</button>
      ${notice}
    </form>
  `;
}

/** A command to run where the server runs. */
export function Command({ text }) {
  return html`
    <div class="admin-command">
      <p class="quiet small-text">Run this where the server runs:</p>
      <div class="code secret">
        <pre>${text}</pre>
        <${CopyButton} text=${text} label="Copy the command" />
      </div>
    </div>
  `;
}
