// All entries of the record, numbered.

import { AgentName } from "../components/agent.js";
import { formatSeconds } from "../components/duration.js";
import { html } from "../html.js";
import { Said, Seq, VirtualList } from "./list.js";

const ROW = 30;

/** Entries after `at` (if that is not null) are dimmed. */
export function EntriesView({ entries, zero, at, isRunning, current, onMove, onOpen, labelEnd }) {
  const index = entries.findIndex(({ seq }) => seq === current);
  const row = (n) => {
    const entry = entries[n];
    const { seq, who, whom, isByAgent, name, text, tone } = entry;
    const isLater = at !== null && seq > at;
    return {
      id: `entry-${n}`,
      key: seq,
      class: `entry ${tone} ${isLater ? "later" : ""}`,
      content: html`
        <${Seq} seq=${seq} />
        <span class="entry-time">
          +${formatSeconds((entry.at - zero) / 1000)}
          <${Said}>, </${Said}>
        </span>
        <span class="entry-who">
          ${who && html`<${AgentName} name=${who} isAgent=${isByAgent} />`}${
            whom && html`<span class="quiet"> → ${whom}</span>`
          }
        </span>
        <span class="entry-kind">
          <${Said}> </${Said}>
          ${name}
          <${Said}>: </${Said}>
        </span>
        <span class="entry-text">
          <span class="entry-what">${name} </span>
          ${text}${isLater && html`<${Said}>, after the chosen moment</${Said}>`}
        </span>
      `,
    };
  };
  return html`
    <div class="entries">
      <div class="axis" aria-hidden="true">
        <span class="span-number">#</span>
        <span class="entry-time">Time</span>
        <span class="entry-who">Who</span>
        <span class="entry-kind">What</span>
        <span class="entry-text">Content</span>
      </div>
      <${VirtualList}
        id="trace-rows"
        label=${`Entries, ${entries.length} rows${labelEnd}`}
        count=${entries.length}
        rowHeight=${ROW}
        row=${row}
        follows=${isRunning}
        current=${index < 0 ? null : index}
        onMove=${(n) => onMove(entries[n])}
        onOpen=${(n) => onOpen(entries[n])} />
    </div>
  `;
}
