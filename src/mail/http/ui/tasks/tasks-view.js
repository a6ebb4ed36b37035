// The tasks: at the left the list, beside it the open task with its tabs.

import { TABS } from "../app/router.js";
import { lazy } from "../components/lazy.js";
import { Guard, Loading, Notice } from "../components/notice.js";
import { TabPanel, Tabs } from "../components/tabs.js";
import { Conversation } from "../conversation/conversation.js";
import { html, useEffect, useRef, useState } from "../html.js";
import { BackButton, TaskHead } from "./task-head.js";
import { TaskPane } from "./task-pane.js";

const VIEWS = {
  conversation: Conversation,
  trace: lazy(() => import("../trace/trace.js"), "Trace"),
  graph: lazy(() => import("../graph/graph-tab.js"), "GraphTab"),
};
const NAMES = { conversation: "Conversation", trace: "Trace", graph: "Graph" };

/** What stands in the place of a task that has not been read. */
function Unread({ session, navigate }) {
  const { problem } = session;
  if (!problem) return html`<${Loading} />`;
  return html`
    <div class="task-head only-narrow">
      <${BackButton} navigate=${navigate} />
      <h2>Task</h2>
    </div>
    <div class="task-note">
      <${Notice}
        tone="bad"
        title="This task can't be shown."
        action=${problem.permanent ? null : { name: "Retry", onClick: () => session.open() }}>
        ${problem.status === 404 ? "You have no task with this id." : problem.message}
      </${Notice}>
    </div>
  `;
}

/** A task that was read: its head, and the tabs. */
function Task({ route, list, ...shared }) {
  const { session, navigate } = shared;
  const View = VIEWS[route.tab];
  useEffect(() => {
    VIEWS.trace.prepare();
    VIEWS.graph.prepare();
  }, []);
  return html`
    <${TaskHead} session=${session} list=${list} navigate=${navigate} />
    <${Tabs}
      label="Views of the task"
      panel="task-panel"
      selected=${route.tab}
      tabs=${TABS.map((id) => ({ id, name: NAMES[id] }))}
      onSelect=${(tab) => navigate({ tab })} />
    <${TabPanel} id="task-panel" selected=${route.tab}>
      <${Guard} key=${route.tab} what="This view">
        <${View} ...${shared} entry=${route.entry} isComparing=${route.isComparing} />
      </${Guard}>
    </${TabPanel}>
  `;
}

/** Where a task begins. */
function NewTask({ list, hasBack, ...shared }) {
  return html`
    ${
      hasBack &&
      html`
        <div class="task-head only-narrow">
          <${BackButton} navigate=${shared.navigate} />
          <h2>New task</h2>
        </div>
      `
    }
    <${Conversation} ...${shared} onBegun=${() => list.refresh()} />
  `;
}

/** Return whether there is no task yet: a narrow screen has no list to begin with then. */
function useIsFirst(list) {
  const [isFirst, setFirst] = useState(false);
  useEffect(() => {
    const look = () => setFirst(!list.isLoading && !list.problem && !list.isFiltered && !list.records.length);
    look();
    return list.subscribe(look);
  }, [list]);
  return isFirst;
}

/** `list` is the `TaskList`; the other properties are those of every view. */
export function TasksView({ list, route, ...shared }) {
  const { session } = shared;
  const shows = session?.id ?? Boolean(route.isNew);
  const isFirst = useIsFirst(list);
  const shown = useRef(shows);
  useEffect(() => {
    // On narrow screens what had the focus is gone, unless the reader has moved it by now.
    const { activeElement: active } = document;
    const isElsewhere = active.matches("textarea, input") && active.checkVisibility();
    if (shows !== shown.current && !isElsewhere && matchMedia("(max-width: 800px)").matches)
      document.getElementById("main").focus();
    shown.current = shows;
  }, [shows]);
  return html`
    <div class=${`tasks-view ${session || route.isNew || isFirst ? "has-task" : ""}`}>
      <${TaskPane} list=${list} route=${route} caller=${shared.caller} navigate=${shared.navigate} />
      <section class="task" aria-label=${session ? "Task" : "New task"}>
        ${!session && html`<${NewTask} key="new" list=${list} hasBack=${!isFirst} ...${shared} />`}
        ${
          session &&
          (session.record
            ? html`<${Task} key=${session.id} route=${route} list=${list} ...${shared} />`
            : html`<${Unread} key=${session.id} session=${session} navigate=${shared.navigate} />`)
        }
      </section>
    </div>
  `;
}
