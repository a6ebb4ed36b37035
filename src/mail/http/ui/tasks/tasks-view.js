// The tasks: at the left the list, beside it the open task with its tabs.

import { useStore } from "../app/store.js";
import { TABS } from "../app/router.js";
import { IconButton } from "../components/button.js";
import { StatusChip } from "../components/chip.js";
import { TabPanel, Tabs } from "../components/tabs.js";
import { Conversation } from "../conversation/conversation.js";
import { GraphTab } from "../graph/graph-tab.js";
import { html } from "../html.js";
import { Trace } from "../trace/trace.js";
import { TaskPane } from "./task-pane.js";

const VIEWS = { conversation: Conversation, trace: Trace, graph: GraphTab };
const NAMES = { conversation: "Conversation", trace: "Trace", graph: "Graph" };

function TaskHead({ session, route, navigate }) {
  const record = session.shown;
  return html`
    <div class="task-head">
      <${IconButton} icon="back" label="Back to the list" class="button icon-button back" onClick=${() => navigate({ view: "tasks" })} />
      <h2 class="task-title" title=${record?.title}>${record?.title || session.id}</h2>
      ${record && html`<${StatusChip} status=${record.status} />`}
    </div>
    <${Tabs} label="Views of the task" panel="task-panel" selected=${route.tab} tabs=${TABS.map((id) => ({ id, name: NAMES[id] }))} onSelect=${(tab) => navigate({ tab })} />
  `;
}

/** `list` is the `TaskList`; the other properties are those of every view. */
export function TasksView({ list, route, ...shared }) {
  const { session, navigate } = shared;
  useStore(session);
  const View = VIEWS[route.tab];
  return html`
    <div class=${`tasks-view ${session ? "has-task" : ""}`}>
      <${TaskPane} list=${list} open=${route.task} navigate=${navigate} />
      <section class="task" aria-label=${session ? "Task" : "New task"}>
        ${session && html`<${TaskHead} session=${session} route=${route} navigate=${navigate} />`}
        ${session
          ? html`<${TabPanel} id="task-panel" selected=${route.tab}><${View} key=${session.id} ...${shared} entry=${route.entry} /><//>`
          : html`<${Conversation} key="new" ...${shared} />`}
      </section>
    </div>
  `;
}
