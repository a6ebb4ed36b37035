// Ctrl+K finds tasks, agents and commands; ? shows the shortcuts of the keyboard.

import * as api from "../api/api.js";
import { StatusChip } from "../components/chip.js";
import { Dialog } from "../components/dialog.js";
import { Excerpt } from "../components/excerpt.js";
import { Icon } from "../components/icons.js";
import { visible } from "../components/visible.js";
import { matcher } from "../components/words.js";
import { html, useEffect, useId, useRef, useState } from "../html.js";

/** Milliseconds after the last key before tasks are searched for. */
const PAUSE = 150;

/** Tasks that are shown. */
const MOST = 8;

const isMac = /Mac|iPhone|iPad/.test(globalThis.navigator?.platform ?? "");
const CONTROL = isMac ? "⌘" : "Ctrl";

/** What keys do, by where; several keys of a line are pressed together, or do the same in other directions. */
const SHORTCUTS = {
  Everywhere: {
    [`${CONTROL} K`]: "Find a task, an agent or a command",
    "?": "Show these shortcuts",
    Esc: "Close what is open",
  },
  "List of tasks": { "↑ ↓": "The task above or below", "Home End": "The first or last task" },
  Message: { Enter: "Send", "Shift Enter": "A new line" },
  Trace: { "↑ ↓": "The entry above or below", "← →": "Fold or unfold an entry of the tree", Enter: "Show an entry" },
  Graph: { "↑ ↓ ← →": "The next agent in that direction", "+ - 0": "Zoom in, out, or back", Enter: "Show an agent" },
};

function Shortcuts({ onClose }) {
  return html`
    <${Dialog} title="Keyboard shortcuts" onClose=${onClose}>
      <div class="dialog-body shortcuts">
        ${Object.entries(SHORTCUTS).map(
          ([where, lines]) => html`
            <section key=${where}>
              <h3>${where}</h3>
              <dl>
                ${Object.entries(lines).map(
                  ([keys, what]) => html`
                    <div key=${what}>
                      <dt>
                        ${keys.split(" ").map((key) => html`<kbd key=${key}>${key}</kbd>`)}
                      </dt>
                      <dd>${what}</dd>
                    </div>
                  `,
                )}
              </dl>
            </section>
          `,
        )}
      </div>
    </${Dialog}>
  `;
}

/** What is found besides tasks: `{kind, name, run}`. */
function placesOf({ swarm, caller, navigate, onSignOut, onShortcuts }) {
  const command = (name, change) => ({ kind: "command", name, run: () => navigate(change) });
  return [
    command("New task", { view: "tasks", isNew: true }),
    command("Tasks", { view: "tasks" }),
    command("Needs you", { view: "approvals" }),
    command("Mail", { view: "mail" }),
    command("Swarm", { view: "swarm" }),
    ...(caller.isAdmin ? [command("Admin", { view: "admin" })] : []),
    { kind: "command", name: "Keyboard shortcuts", run: onShortcuts },
    { kind: "command", name: "Sign out", run: onSignOut },
    ...swarm.agents.map(({ name }) => ({ kind: "agent", name, run: () => navigate({ view: "swarm", agent: name }) })),
  ];
}

/** The tasks that a search finds, some time after the last key. */
function useTasks(text) {
  const [found, setFound] = useState({ text: null, tasks: [] });
  useEffect(() => {
    let isOver = false;
    const search = async () => {
      const { records } = await api.tasks({ q: text.trim(), limit: MOST }).catch(() => ({ records: [] }));
      if (!isOver) setFound({ text, tasks: records });
    };
    const timer = setTimeout(search, text ? PAUSE : 0);
    return () => {
      isOver = true;
      clearTimeout(timer);
    };
  }, [text]);
  return [found.tasks, found.text === text];
}

const ICONS = { command: "right", agent: "agent", task: "mail" };

function Palette({ onClose, ...shared }) {
  const [text, setText] = useState("");
  const [at, setAt] = useState(0);
  const [tasks, isRead] = useTasks(text);
  const id = useId();
  const list = useRef();
  const places = placesOf(shared).filter(({ name }) => matcher(text)(name));
  const found = (isRead ? tasks : []).map((task) => ({
    kind: "task",
    name: visible(task.title || task.task_id),
    task,
    run: () => shared.navigate({ task: task.task_id }),
  }));
  const entries = text.trim() ? [...places, ...found] : [...found, ...places];
  const current = Math.min(at, entries.length - 1);
  useEffect(
    () => void list.current?.children[current]?.scrollIntoView({ block: "nearest" }),
    [current, entries.length],
  );
  const run = (entry) => {
    onClose();
    entry?.run();
  };
  const onKeyDown = (event) => {
    const next = { ArrowDown: current + 1, ArrowUp: current - 1 }[event.key];
    if (!entries.length) return;
    if (event.key === "Enter" && !event.isComposing) run(entries[current]);
    else if (next === undefined) return;
    else setAt((next + entries.length) % entries.length);
    event.preventDefault();
  };
  return html`
    <${Dialog} title="Find" onClose=${onClose}>
      <div class="palette">
        <input
          type="text"
          role="combobox"
          aria-label="Find a task, an agent or a command"
          aria-expanded="true"
          aria-controls=${id}
          aria-activedescendant=${entries.length ? `${id}-${current}` : null}
          aria-autocomplete="list"
          placeholder="Tasks, agents, commands"
          autocomplete="off"
          autofocus
          value=${text}
          onInput=${(event) => {
            setText(event.currentTarget.value);
            setAt(0);
          }}
          onKeyDown=${onKeyDown} />
        <ul id=${id} ref=${list} role="listbox" aria-label="Found" class="palette-list">
          ${entries.map(
            (entry, n) => html`
              <li
                key=${`${entry.kind} ${entry.task?.task_id ?? entry.name}`}
                id=${`${id}-${n}`}
                role="option"
                aria-selected=${n === current ? "true" : "false"}
                onClick=${() => run(entry)}>
                <${Icon} name=${ICONS[entry.kind]} />
                <span class="palette-name">
                  ${entry.name}${" "}
                  <${Excerpt} pieces=${entry.task?.excerpt} />
                </span>
                ${
                  entry.task
                    ? html`<${StatusChip} status=${entry.task.status} />`
                    : html`<span class="quiet small-text">${entry.kind}</span>`
                }
              </li>
            `,
          )}
        </ul>
        <p class="quiet small-text" role="status">
          ${!entries.length && (isRead ? "Nothing is found." : "Searching…")}
        </p>
      </div>
    </${Dialog}>
  `;
}

/** The dialogs, and the keys that open them. */
export function Finder(shared) {
  const [open, setOpen] = useState(null); // "palette", "shortcuts" or null
  useEffect(() => {
    const onKeyDown = (event) => {
      if (document.querySelector("dialog[open]")) return;
      const isTyping = event.target.closest?.("input, textarea, select, [contenteditable]");
      const isFind = event.key.toLowerCase() === "k" && (isMac ? event.metaKey : event.ctrlKey) && !event.altKey;
      const isHelp = event.key === "?" && !isTyping && !event.ctrlKey && !event.metaKey && !event.altKey;
      if (!isFind && !isHelp) return;
      event.preventDefault();
      setOpen(isFind ? "palette" : "shortcuts");
    };
    globalThis.addEventListener("keydown", onKeyDown);
    return () => globalThis.removeEventListener("keydown", onKeyDown);
  }, []);
  const close = () => setOpen(null);
  if (open === "shortcuts") return html`<${Shortcuts} onClose=${close} />`;
  if (open === "palette")
    return html`<${Palette} ...${shared} onClose=${close} onShortcuts=${() => setOpen("shortcuts")} />`;
  return null;
}
