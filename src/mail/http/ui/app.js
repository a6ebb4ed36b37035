// The page: signing in, the swarm, the list of tasks, and messages. `task.js` has the task that is open.

import * as api from "./api.js";
import { $, h } from "./dom.js";
import { drawGraph } from "./graph.js";
import { TaskView } from "./task.js";
import { startTheme } from "./theme.js";

/** Milliseconds after which the page checks again whether a stopped task was resumed. */
const LOOK = 10_000;

let view = null;
let begun = null; // the task that a message from here has begun last
let cursor = null;
let aimed = null; // the task whose entrypoint was put into the form
let home = ""; // the swarm's entrypoint
let graph = { flash() {} };
let isAway = false; // whether the problem that is shown is that the server can't be reached

// ------------------------------------------------------------------------------------------------ problems

function complain(error) {
  if (error.status === 401) return signOut("This token is not valid (any more).");
  if (!(error instanceof api.Problem)) console.error(error);
  $("problem").textContent = error.message;
  $("problem").hidden = false;
  isAway = error.status === api.UNREACHABLE;
}

const settle = () => ($("problem").hidden = true);

/** The server answers: where that was the problem, it is none any more. */
function onReached() {
  if (isAway) settle();
  isAway = false;
}

/** A listener that tells what goes wrong, and keeps its form from being sent twice. */
function guarded(work) {
  return async (event) => {
    event?.preventDefault();
    const button = event?.currentTarget?.querySelector?.("[type=submit]");
    if (button?.disabled) return;
    if (button) button.disabled = true;
    settle();
    try {
      await work(event);
    } catch (error) {
      complain(error);
    } finally {
      if (button) button.disabled = false;
    }
  };
}

// ------------------------------------------------------------------------------------------------- signing in

function signOut(why = "") {
  api.token.forget();
  closeTask();
  for (const id of ["desk", "sign-out", "whoami", "health"]) $(id).hidden = true;
  $("sign-in").hidden = false;
  $("tasks").replaceChildren();
  $("graph").replaceChildren();
  $("problem").textContent = why;
  $("problem").hidden = !why;
  isAway = false;
  $("token").focus();
}

async function signIn(token) {
  $("sign-in").hidden = false;
  const caller = await api.signIn(token);
  $("whoami").textContent = `${caller.role} ${caller.id}`;
  const [swarm] = await Promise.all([api.swarm(), showHealth(), showOthers(), listTasks()]);
  showSwarm(swarm);
  for (const id of ["desk", "sign-out", "whoami"]) $(id).hidden = false;
  $("sign-in").hidden = true;
  await openNamed();
}

// -------------------------------------------------------------------------------------------------- the swarm

async function showHealth() {
  const { status } = await api.health();
  $("health").textContent = status;
  $("health").className = `chip ${status === "healthy" ? "completed" : "paused"}`;
  $("health").hidden = false;
}

function agentItem(agent) {
  const facts = [
    agent.enable_entrypoint && "takes messages from people",
    agent.can_complete_tasks && "completes tasks",
    agent.enable_interswarm && "writes to other swarms",
    agent.comm_targets.length && `writes to ${agent.comm_targets.join(", ")}`,
    agent.actions.length && `can ${agent.actions.join(", ")}`,
  ];
  return h("li", {}, h("strong", {}, agent.name), `: ${facts.filter(Boolean).join("; ") || "only reads"}`);
}

function showSwarm(swarm) {
  document.title = `${swarm.name} · MAIL`;
  $("swarm-name").textContent = swarm.name;
  $("swarm-description").textContent = swarm.description;
  graph = drawGraph(swarm);
  $("graph").replaceChildren(graph.drawing);
  $("agents").replaceChildren(...swarm.agents.map(agentItem));
  const open = swarm.agents.filter((agent) => agent.enable_entrypoint);
  $("entrypoint").replaceChildren(...open.map(({ name }) => h("option", { value: name }, name)));
  $("entrypoint").value = home = swarm.entrypoint;
}

async function showOthers() {
  const swarms = await api.otherSwarms();
  const items = swarms.map((swarm) =>
    h(
      "li",
      {},
      h("span", { class: `chip ${swarm.is_active ? "completed" : "failed"}` }, swarm.is_active ? "up" : "down"),
      ` ${swarm.swarm_name}`,
      swarm.swarm_description && h("span", { class: "quiet" }, ` ${swarm.swarm_description}`),
    ),
  );
  $("others").replaceChildren(...(items.length ? items : [h("li", { class: "quiet" }, "None that are public.")]));
}

// -------------------------------------------------------------------------------------------------- the tasks

function describeTask(item, record) {
  item.querySelector(".title").textContent = record.title || record.task_id;
  item.querySelector(".chip").textContent = record.status;
  item.querySelector(".chip").className = `chip ${record.status}`;
  item.querySelector("time").textContent = new Date(record.start_time).toLocaleString();
}

function taskItem(record) {
  const link = h("a", { href: `#${new URLSearchParams({ task: record.task_id })}` }, h("span", { class: "title" }), h("span", { class: "chip" }), h("time", { class: "quiet" }));
  const item = h("li", { "data-task": record.task_id }, link);
  describeTask(item, record);
  return item;
}

async function listTasks({ more = false } = {}) {
  const page = await api.tasks({ cursor: more ? cursor : null, status: $("status-filter").value });
  cursor = page.cursor;
  const items = page.records.map(taskItem);
  if (more) $("tasks").append(...items);
  else $("tasks").replaceChildren(...(items.length ? items : [h("li", { class: "quiet none" }, "None yet.")]));
  $("more").hidden = !cursor;
  markOpen();
}

function markOpen() {
  for (const item of $("tasks").querySelectorAll("[data-task]")) {
    const isOpen = item.dataset.task === view?.id;
    item.classList.toggle("open", isOpen);
    if (isOpen) item.firstChild.setAttribute("aria-current", "true");
    else item.firstChild.removeAttribute("aria-current");
  }
}

function onRecord(record) {
  if (aimed !== record.task_id) {
    aimed = record.task_id;
    $("entrypoint").value = record.entrypoint; // none, where people can't write to it
  }
  const items = [...$("tasks").querySelectorAll("[data-task]")];
  const item = items.find(({ dataset }) => dataset.task === record.task_id);
  if (item) describeTask(item, record);
  else if (!$("status-filter").value) {
    $("tasks").querySelector(".none")?.remove();
    $("tasks").prepend(taskItem(record));
  }
  markOpen();
}

function closeTask() {
  view?.close();
  view = aimed = null;
  $("entrypoint").value = home;
  $("task").hidden = true;
  $("compose-title").textContent = "New task";
  markOpen();
}

/** Opens the task that the address names, if it does. */
async function openNamed() {
  const id = new URLSearchParams(location.hash.slice(1)).get("task");
  if (id === (view?.id ?? null)) return;
  closeTask();
  if (!id || !api.token.get()) return;
  const onLine = (line) => graph.flash(line.who, ...line.whom);
  view = new TaskView(id, { onLine, onRecord, onProblem: complain, onReached });
  $("compose-title").textContent = "Follow up";
  markOpen();
  const opened = view;
  try {
    await opened.open({ isNew: id === begun });
  } catch (error) {
    if (opened !== view) return; // another one was opened meanwhile
    closeTask();
    throw error;
  }
}

// ----------------------------------------------------------------------------------------------- the messages

const DROPS_QUESTION = "This task waits for your answer. Send the message anyway, and drop the question?";

async function compose() {
  const follows = view;
  const message = {
    body: $("body").value,
    subject: $("subject").value || null,
    entrypoint: $("entrypoint").value || null,
    msg_type: $("msg-type").value,
    task_id: follows?.id ?? null,
  };
  const id = await api.send(message).catch((problem) => {
    if (!problem.isQuestion) throw problem;
    // A press of Cancel keeps the text, and leads to the form with the question.
    if (!confirm(DROPS_QUESTION)) return null;
    return api.send({ ...message, drop_question: true });
  });
  if (id === null) return void $("breakpoint").scrollIntoView();
  $("body").value = $("subject").value = "";
  if (follows && follows === view) return void follows.watch();
  if (!follows) begun = id;
  location.hash = new URLSearchParams({ task: id });
}

/** Somebody else may have gone on with the task that is open; or the server is there again. */
function look() {
  if (document.visibilityState !== "visible") return;
  if (view) void view.look();
  else if (isAway) showHealth().then(onReached, () => {});
}

function start() {
  startTheme();
  $("sign-in-form").addEventListener(
    "submit",
    guarded(async () => {
      const token = $("token").value.trim();
      $("token").value = "";
      await signIn(token);
    }),
  );
  $("sign-out").addEventListener("click", () => signOut());
  $("refresh").addEventListener(
    "click",
    guarded(() => Promise.all([listTasks(), showHealth(), showOthers(), view?.refresh()])),
  );
  $("status-filter").addEventListener("change", guarded(() => listTasks()));
  $("more").addEventListener("click", guarded(() => listTasks({ more: true })));
  $("new-task").addEventListener("click", () => {
    location.hash = "";
    $("body").focus();
  });
  $("compose").addEventListener("submit", guarded(compose));
  $("breakpoint").addEventListener("submit", guarded(() => view.answer()));
  $("moments").addEventListener(
    "submit",
    guarded(() => view.lookAt($("moment").value ? Number($("moment").value) : undefined)),
  );
  $("fork").addEventListener(
    "click",
    guarded(async () => void (location.hash = new URLSearchParams({ task: await view.fork() }))),
  );
  $("cancel").addEventListener("click", guarded(() => view.cancel()));
  $("body").addEventListener("keydown", (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) $("compose").requestSubmit();
  });
  window.addEventListener("hashchange", guarded(openNamed));
  for (const sign of ["focus", "visibilitychange"]) window.addEventListener(sign, look);
  setInterval(look, LOOK);
  if (api.token.get()) guarded(() => signIn(api.token.get()))();
  else signOut();
}

start();
