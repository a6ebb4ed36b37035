// A box, kept up to date while it is shown, and the list of its entries.

import { pauseAfter, repeat } from "../app/poll.js";
import { formatRoute } from "../app/router.js";
import { Store, useStore } from "../app/store.js";
import { Chip } from "../components/chip.js";
import { ConfirmButton } from "../components/dialog.js";
import { Ago } from "../components/duration.js";
import { Empty, Loading, Notice } from "../components/notice.js";
import { html, useEffect, useMemo } from "../html.js";
import { useStop } from "../tasks/task-pane.js";
import * as mail from "./api.js";

/** Milliseconds between two looks. */
const PAUSE = 20_000;

/** The tags of what agents send. */
const TAGS = ["answer", "question", "approval", "failed", "request", "withdrawn"];

const idOf = (entry) => entry.message_id ?? entry.draft_id;

export const timeOf = (entry) => entry.received_at ?? entry.updated_at ?? entry.sent_at;

export class Box extends Store {
  entries = [];
  next = null; // the offset of older ones
  filters = {}; // unread, tag
  isLoading = true;
  problem = null;
  #version = 0; // of the filters

  constructor(name) {
    super();
    this.name = name;
  }

  /** Begin; returns the function that ends it. */
  start() {
    return repeat(
      () => this.refresh(),
      (failures) => pauseAfter(failures, PAUSE),
    );
  }

  /** Read the newest entries again; those that are older than these stay. Returns whether that has succeeded. */
  refresh() {
    return this.#read(0, ({ entries, next }) => {
      const last = entries.at(-1);
      const older =
        next === null ? [] : this.entries.slice(this.entries.findIndex((one) => idOf(one) === idOf(last)) + 1);
      const hasOlder = older.length > 0 && older.length < this.entries.length;
      this.entries = hasOlder ? [...entries, ...older] : entries;
      if (!hasOlder) this.next = next;
    });
  }

  readOlder() {
    return this.#read(this.next, ({ entries, next }) => {
      const known = new Set(this.entries.map(idOf)); // what has come meanwhile moves the others
      this.entries = [...this.entries, ...entries.filter((one) => !known.has(idOf(one)))];
      this.next = next;
    });
  }

  filter(filters) {
    this.#version += 1;
    Object.assign(this, { filters: { ...this.filters, ...filters }, entries: [], next: null, isLoading: true });
    this.changed();
    return this.refresh();
  }

  /** Take note that an entry is read, or gone. */
  mark(id, isGone = false) {
    this.entries = isGone
      ? this.entries.filter((one) => idOf(one) !== id)
      : this.entries.map((one) => (idOf(one) === id ? { ...one, is_read: true } : one));
    this.changed();
  }

  async #read(offset, use) {
    const version = this.#version;
    try {
      const found = await mail.page(this.name, { offset, ...this.filters });
      if (version === this.#version) use(found);
      this.problem = null;
    } catch (problem) {
      this.problem = problem;
    }
    this.isLoading = false;
    this.changed();
    return !this.problem;
  }
}

/** The box with this name, while it is shown; null for another part of the view. */
export function useBox(name) {
  const box = useMemo(() => (name ? new Box(name) : null), [name]);
  useEffect(() => box?.start(), [box]);
  return box;
}

function Entry({ box, entry, isOpen, isStop }) {
  const id = idOf(entry);
  const isUnread = box === "inbox" && !entry.is_read;
  return html`
    <li>
      <a
        class=${`task-item ${isUnread ? "unread" : ""}`}
        href=${`#${formatRoute({ view: "mail", box, entry: id })}`}
        aria-current=${isOpen ? "true" : null}
        tabindex=${isStop ? 0 : -1}
        data-entry=${id}>
        <span class="title">
          ${isUnread && html`<span class="hidden-label">Unread: </span>`}${entry.subject}
        </span>
        <span class="facts">
          ${entry.undelivered?.length > 0 && html`<${Chip} tone="bad">undelivered</${Chip}>`}
          ${entry.tags.slice(0, 2).map((tag) => html`<${Chip} key=${tag}>${tag}</${Chip}>`)}
          <span class="mail-who">${entry.sender ?? entry.recipients?.join(", ") ?? ""}</span>
          <${Ago} time=${timeOf(entry)} />
        </span>
      </a>
    </li>
  `;
}

function Filters({ box, tags }) {
  const { unread, tag = "" } = box.filters;
  return html`
    <div class="mail-filters">
      ${
        box.name === "inbox" &&
        html`
          <label class="row">
            <input
              type="checkbox"
              checked=${Boolean(unread)}
              onChange=${(event) => box.filter({ unread: event.currentTarget.checked || undefined })} />
            Unread
          </label>
        `
      }
      <select aria-label="Tag" value=${tag} onChange=${(event) => box.filter({ tag: event.currentTarget.value })}>
        <option value="">All tags</option>
        ${tags.map((each) => html`<option key=${each} value=${each}>${each}</option>`)}
      </select>
    </div>
  `;
}

function ClearTrash({ box, navigate }) {
  const clear = async () => {
    await mail.clearTrash().catch((problem) => Object.assign(box, { problem }).changed());
    navigate({ view: "mail", box: "trash" });
    await box.refresh();
  };
  return html`
    <${ConfirmButton}
      label="Empty the trash"
      class="button small older"
      title="Empty the trash?"
      action="Delete all"
      onConfirm=${clear}>
      <p>All messages of the trash are deleted. This can't be undone.</p>
    </${ConfirmButton}>
  `;
}

/** The entries of a box; `open` is the id of the one that is shown. */
export function Entries({ box, open, navigate }) {
  useStore(box);
  const { entries, next, isLoading, problem, filters } = box;
  const { stop, list } = useStop(entries.map(idOf), open);
  const tags = [...new Set([...TAGS, ...entries.flatMap((one) => one.tags), filters.tag].filter(Boolean))];
  const isFiltered = Boolean(filters.unread || filters.tag);
  return html`
    <${Filters} box=${box} tags=${tags} />
    ${problem && !problem.isUnreachable && html`<${Notice} tone="bad">${problem.message}</${Notice}>`}
    <ul class="task-items" ...${list}>
      ${entries.map(
        (entry) => html`
          <${Entry}
            key=${idOf(entry)}
            box=${box.name}
            entry=${entry}
            isOpen=${idOf(entry) === open}
            isStop=${idOf(entry) === stop} />
        `,
      )}
    </ul>
    ${isLoading && html`<${Loading} />`}
    ${
      !isLoading &&
      !entries.length &&
      !problem &&
      html`<${Empty} title=${isFiltered || next !== null ? "Nothing matches" : "Nothing here"} />`
    }
    ${
      next !== null &&
      html`<button type="button" class="button small older" onClick=${() => box.readOlder()}>Older</button>`
    }
    ${box.name === "trash" && entries.length > 0 && html`<${ClearTrash} box=${box} navigate=${navigate} />`}
  `;
}
