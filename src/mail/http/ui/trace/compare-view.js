// A fork beside its original, entry by entry.

import * as api from "../api/api.js";
import { AgentName } from "../components/agent.js";
import { formatSeconds } from "../components/duration.js";
import { formatCost, formatUsage } from "../components/usage.js";
import { useData } from "../components/use-data.js";
import { plural } from "../components/words.js";
import { html, useMemo, useState } from "../html.js";
import { formatRoute } from "../app/router.js";
import { compare } from "./compare.js";
import { Said, Seq, VirtualList } from "./list.js";

const ROW = 58;

async function readAll(id) {
  const found = [];
  for (;;) {
    const { record, events, isComplete } = await api.task(id, { after: found.at(-1)?.seq ?? 0 });
    found.push(...events);
    if (isComplete) return { record, events: found };
  }
}

/** What a run came to, in a line, by the server's comparison: as the table of tried drafts has it. */
const inWords = (run) =>
  [plural(run.turns, "turn"), plural(run.calls, "model call"), formatCost(run), formatSeconds(run.seconds)]
    .filter(Boolean)
    .join(" · ");

function Side({ entry }) {
  if (!entry)
    return html`
      <span class="side missing">
        –
        <${Said}> nothing </${Said}>
      </span>
    `;
  const { seq, who, whom, isByAgent, name, text, tone } = entry;
  return html`
    <span class=${`side ${tone}`}>
      <span class="side-head">
        <${Seq} seq=${seq} then=" " />
        ${who && html`<${AgentName} name=${who} isAgent=${isByAgent} />`}
        <span class="quiet">${whom ? `→ ${whom}` : name}</span>
      </span>
      <span class="side-text">${text}</span>
    </span>
  `;
}

export function CompareView({ session, origin, onOpen }) {
  const { data, instead } = useData(() => readAll(origin.task_id), { about: [origin.task_id] });
  const { record, events } = data ?? {};
  const isFork = origin.at > 0; // otherwise a task of its own, which the server compares with no other
  const { data: runs } = useData(async () => (isFork ? api.read("task/comparison", { task_id: session.id }) : null), {
    about: [session.id, session.record.status],
  });
  const found = useMemo(() => events && compare(events, session.events, origin.at), [events, session.events.length]);
  const [current, setCurrent] = useState(null);
  if (instead) return instead;
  const { rows, shared, parts, same } = found;
  const later = parts === null ? [] : rows.slice(parts);
  const at = (side, task) => {
    const entry = later.find((each) => each[side])?.[side];
    return entry ? `entry ${entry.seq} of ${task}` : `the end of ${task}`;
  };
  const row = (n) => {
    const { left, right, isSame } = rows[n];
    return {
      id: `pair-${n}`,
      key: n,
      class: `pair ${isSame ? "same" : "differs"} ${n === parts ? "parts" : ""}`,
      content: html`
        <${Said}>${isSame ? "The same in both. " : "Different. "}</${Said}>
        <${Side} entry=${left} />
        <span class="pair-mark" aria-hidden="true">${isSame ? "=" : "≠"}</span>
        <${Side} entry=${right} />
      `,
    };
  };
  const before = `${plural(shared, "entry", "entries")} before the fork; after it`;
  const words = [
    origin.at === 0 ? "The first message was edited;" : before,
    `${plural(same, "entry is", "entries are")} the same.`,
    parts === null
      ? "They don't differ."
      : `They part at ${at("left", "the original")} and ${at("right", "this task")}.`,
  ];
  const totals = (run, { usage }) => {
    const said = isFork ? run && inWords(run) : formatUsage(usage.total);
    return html`<span class="quiet small-text">${said}</span>`;
  };
  return html`
    <div class="compare">
      <p class="compare-words">${words.join(" ")}</p>
      <div class="pair pair-heads">
        <span class="side">
          <a href=${`#${formatRoute({ view: "tasks", task: origin.task_id, tab: "trace" })}`}>
            Original${origin.at === 0 ? "" : `, after entry ${origin.at}`}
          </a>
          ${totals(runs?.before, record)}
        </span>
        <span></span>
        <span class="side">
          <strong>This task</strong>
          ${totals(runs?.after, session.record)}
        </span>
      </div>
      <${VirtualList}
        label=${`Comparison, ${rows.length} rows`}
        count=${rows.length}
        rowHeight=${ROW}
        row=${row}
        current=${current}
        onMove=${setCurrent}
        onOpen=${(n) => rows[n].right && onOpen(rows[n].right)} />
    </div>
  `;
}
