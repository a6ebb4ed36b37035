// The tasks: at the left the list, beside it the open task with its tabs.

import { TABS } from "../app/router.js";
import { TabPanel, Tabs } from "../components/tabs.js";
import { Conversation } from "../conversation/conversation.js";
import { GraphTab } from "../graph/graph-tab.js";
import { html } from "../html.js";
import { Trace } from "../trace/trace.js";
import { BackButton, TaskHead } from "./task-head.js";
import { TaskPane } from "./task-pane.js";

const VIEWS = { conversation: Conversation, trace: Trace, graph: GraphTab };
const NAMES = { conversation: "Conversation", trace: "Trace", graph: "Graph" };

/** `list` is the `TaskList`; the other properties are those of every view. */
export function TasksView({ list, route, ...shared }) {
  const { session, navigate } = shared;
  const View = VIEWS[route.tab];
  return html`
    <div class=${`tasks-view ${session || route.isNew ? "has-task" : ""}`}>
      <${TaskPane} list=${list} open=${route.task} navigate=${navigate} />
      <section class="task" aria-label=${session ? "Task" : "New task"}>
        ${session &&
        html`
          <${TaskHead} key=${session.id} session=${session} navigate=${navigate} />
          <${Tabs} label="Views of the task" panel="task-panel" selected=${route.tab} tabs=${TABS.map((id) => ({ id, name: NAMES[id] }))} onSelect=${(tab) => navigate({ tab })} />
        `}
        ${session
          ? html`<${TabPanel} id="task-panel" selected=${route.tab}><${View} key=${session.id} ...${shared} entry=${route.entry} /><//>`
          : html`<div class="task-head only-narrow"><${BackButton} navigate=${navigate} /><h2>New task</h2></div><${Conversation} key="new" ...${shared} onBegun=${() => list.refresh()} />`}
      </section>
    </div>
  `;
}
