// A task as people see it who have only a link to it: its conversation and its trace. They can change nothing.

import * as api from "../api/api.js";
import { Chip, StatusChip } from "../components/chip.js";
import { formatDate } from "../components/duration.js";
import { Empty, Guard, Loading, Notice } from "../components/notice.js";
import { TabPanel, Tabs } from "../components/tabs.js";
import { visible } from "../components/visible.js";
import { Told } from "../conversation/conversation.js";
import { Items } from "../conversation/items.js";
import { html, useEffect, useMemo, useState } from "../html.js";
import { readSpans } from "../trace/spans.js";
import { Waterfall } from "../trace/waterfall.js";

/** Milliseconds between two looks at a task that has not stopped. */
const PAUSE = 5_000;

const TABS = [
  { id: "conversation", name: "Conversation" },
  { id: "trace", name: "Trace" },
];

/** What a link shows: `{record, items, problem}`; it is read again until the task stops or the link ends. */
function useShared(code) {
  const [found, setFound] = useState({ record: null, problem: null });
  const items = useMemo(() => new Items(), [code]);
  useEffect(() => {
    const stop = new AbortController();
    let after = 0;
    let timer = null;
    const look = async () => {
      let wait = PAUSE;
      try {
        const { items: more, next, ...record } = await api.shared(code, { after, signal: stop.signal });
        items.with(more);
        after = record.seq;
        setFound({ record, problem: null });
        if (next !== null) wait = 0;
        else if (record.status !== "running" && record.status !== "paused") return;
      } catch (problem) {
        if (stop.signal.aborted) return;
        setFound((before) => ({ record: problem.status === 404 ? null : before.record, problem }));
        if (problem.permanent) return;
      }
      timer = setTimeout(look, wait);
    };
    void look();
    return () => {
      stop.abort();
      clearTimeout(timer);
    };
  }, [code]);
  return { ...found, items };
}

function Talk({ items, onTrace }) {
  return html`
    <div class="conversation">
      <div class="chat-scroll" tabindex="0" role="region" aria-label="Conversation">
        <div class="chat">
          <${Told} items=${items.shown} onTrace=${onTrace} />
        </div>
      </div>
    </div>
  `;
}

function Trace({ items, record }) {
  const [current, setCurrent] = useState(null);
  const found = readSpans(items.all, [], { status: record.status });
  for (const span of found.spans) if (span.isForYou) span.name = "waits for a person";
  if (!found.spans.length) return html`<${Empty} title="Nothing has happened yet" />`;
  return html`
    <div class="trace">
      <div class="trace-pane">
        <${Waterfall}
          spans=${found.spans}
          all=${found.spans}
          agents=${found.agents}
          zero=${found.begin}
          now=${found.end}
          at=${null}
          current=${current}
          labelEnd=""
          onMove=${({ id }) => setCurrent(id)}
          onOpen=${({ id }) => setCurrent(id)} />
      </div>
    </div>
  `;
}

/** `code` is that of the link. */
export function Shared({ code }) {
  const { record, items, problem } = useShared(code);
  const [tab, setTab] = useState("conversation");
  const title = record && visible(record.title || "A shared task");
  useEffect(() => {
    document.title = `${title ?? "A shared task"} · MAIL`;
  }, [title]);
  const said =
    problem &&
    html`
      <div class="task-note">
        <${Notice} tone="bad" title=${record ? "" : "This task can't be shown."}>${problem.message}</${Notice}>
      </div>
    `;
  if (!record)
    return html`
      <main id="main" tabindex="-1">
        ${said ?? html`<${Loading} />`}
      </main>
    `;
  const { status, task_owner: owner, expires } = record;
  const views = {
    conversation: () => html`<${Talk} items=${items} onTrace=${() => setTab("trace")} />`,
    trace: () => html`<${Trace} items=${items} record=${record} />`,
  };
  return html`
    <main id="main" tabindex="-1">
      <section class="task shared" aria-label="Shared task">
        <div class="task-head">
          <h2 class="task-title" title=${title}>${title}</h2>
          <${StatusChip} status=${status} />
          <${Chip} title="You can read this task, and change nothing.">read-only</${Chip}>
        </div>
        <p class="shared-by quiet small-text">Shared by ${owner.replace(/@[^@]*$/, "")} until ${formatDate(expires)}</p>
        ${said}
        <${Tabs} label="Views of the task" panel="task-panel" selected=${tab} tabs=${TABS} onSelect=${setTab} />
        <${TabPanel} id="task-panel" selected=${tab}>
          <${Guard} key=${tab} what="This view">${views[tab]()}</${Guard}>
        </${TabPanel}>
      </section>
    </main>
  `;
}
