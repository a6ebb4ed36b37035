// The root of the page: signing in, the views, and the task that is open.

import * as api from "../api/api.js";
import * as oidc from "../api/oidc.js";
import { Needs } from "../approvals/needs.js";
import { mark, Waiting } from "../approvals/waiting.js";
import { assignHues } from "../components/agent.js";
import { lazy } from "../components/lazy.js";
import { Guard, Loading } from "../components/notice.js";
import { visible } from "../components/visible.js";
import { forgetDrafts } from "../conversation/composer.js";
import { html, render, useEffect, useMemo, useRef, useState } from "../html.js";
import { TaskList } from "../tasks/task-list.js";
import { TasksView } from "../tasks/tasks-view.js";
import { Connection } from "./connection.js";
import { Header } from "./header.js";
import { Finder } from "./palette.js";
import { formatRoute, parseRoute, stepRoute } from "./router.js";
import { Session } from "./session.js";
import { SignIn } from "./sign-in.js";
import { useStore } from "./store.js";
import { applyTheme } from "./theme.js";

const Admin = lazy(() => import("../admin/admin.js"), "Admin");
const Mail = lazy(() => import("../mail/mail.js"), "Mail");
const Shared = lazy(() => import("../shared/shared.js"), "Shared");
const SwarmView = lazy(() => import("../graph/swarm-view.js"), "SwarmView");

/** The route, and the function that changes it. */
function useRoute() {
  const [route, setRoute] = useState(() => parseRoute(location.hash));
  useEffect(() => {
    const onHash = () => setRoute(parseRoute(location.hash));
    window.addEventListener("hashchange", onHash);
    return () => window.removeEventListener("hashchange", onHash);
  }, []);
  const navigate = useMemo(
    () =>
      (change, { replace = false } = {}) => {
        const hash = `#${formatRoute(stepRoute(parseRoute(location.hash), change))}`;
        if (!replace) return void (location.hash = hash);
        history.replaceState(null, "", hash);
        setRoute(parseRoute(hash));
      },
    [],
  );
  return [route, navigate];
}

/** The open task's session, one at a time. */
function useSession(id, list, connection) {
  const session = useMemo(() => (id ? new Session(id) : null), [id]);
  useEffect(() => {
    if (!session) return undefined;
    void session.open();
    let wasOffline = connection.isOffline;
    const onConnection = () => {
      if (wasOffline && !connection.isOffline) session.reconnect();
      wasOffline = connection.isOffline;
    };
    const unfollow = [
      connection.subscribe(onConnection),
      list.subscribe(() => session.look(list.find(session.id))),
      session.subscribe(() => session.record && list.put(session.record)),
    ];
    return () => {
      for (const end of unfollow) end();
      session.close();
    };
  }, [session]);
  return session;
}

function Workspace({ connection, caller, swarm, route, navigate, onSignOut }) {
  const list = useMemo(() => new TaskList(route.filter), []);
  const waiting = useMemo(() => new Waiting(), []);
  const session = useStore(useSession(route.view === "tasks" ? route.task : null, list, connection));
  useEffect(() => {
    list.start((problem) => problem.status === 401 && onSignOut("Your token is no longer valid. Sign in again."));
    const disconnect = connection.start(() => list.refresh());
    const endWaiting = waiting.start();
    return () => {
      endWaiting();
      list.stop();
      disconnect();
    };
  }, []);
  useEffect(() => {
    if (route.view === "tasks") list.filter(route.filter);
  }, [route]);
  useEffect(() => void (caller.isAdmin && Admin.prepare()), []);
  useEffect(() => {
    if (route.view === "approvals" && !waiting.isLoading) void waiting.refresh(); // a link leads there: it is news
  }, [route.view]);
  const { count } = useStore(waiting);
  const title = visible(`${session?.record?.title ?? swarm.name} · MAIL`);
  useEffect(() => mark(title, count), [title, count]);
  useEffect(() => () => mark("MAIL", ""), []);
  useEffect(() => {
    if (session) void session.lookAt(route.at).catch((problem) => Object.assign(session, { problem }).changed());
  }, [session, route.at]);
  const shared = { session, swarm, caller, navigate };
  const views = {
    tasks: () => html`<${TasksView} ...${shared} list=${list} route=${route} />`,
    approvals: () => html`<${Needs} waiting=${waiting} swarm=${swarm} />`,
    mail: () => html`<${Mail} ...${shared} route=${route} />`,
    swarm: () => html`<${SwarmView} ...${shared} agent=${route.agent} />`,
    admin: () => html`<${Admin} ...${shared} page=${route.page} />`,
  };
  return html`
    <${Header}
      connection=${connection}
      route=${route}
      swarm=${swarm}
      caller=${caller}
      waiting=${waiting}
      onSignOut=${() => onSignOut()} />
    <main id="main" tabindex="-1">
      <${Guard} key=${route.view} what="This view">${(views[route.view] ?? views.tasks)()}</${Guard}>
    </main>
    <${Finder} swarm=${swarm} caller=${caller} navigate=${navigate} onSignOut=${() => onSignOut()} />
  `;
}

/** Milliseconds after which a server that could not be reached, or not answer, is asked again. */
const RETRY = 2_000;

/** Who a caller is: ids are of a role. */
const keyOf = ({ role, id }) => `${role}:${id}`;

function App() {
  const [route, navigate] = useRoute();
  const connection = useMemo(() => new Connection(), []);
  const [entered, setEntered] = useState(null); // {caller, swarm}
  const [isReady, setReady] = useState(false); // the token that is kept has been tried
  const [waiting, setWaiting] = useState(""); // why signing in is tried again
  const [notice, setNotice] = useState("");
  const lastKey = useRef(null); // of the caller who has signed in last

  const enter = async (token, { isKept = false } = {}) => {
    const found = await api.signIn(token);
    if (!isKept) api.token.keep(token);
    if (api.token.get() !== token) return; // signed out meanwhile
    if (lastKey.current !== keyOf(found.caller)) forgetDrafts();
    lastKey.current = keyOf(found.caller);
    assignHues(found.swarm.agents.map(({ name }) => name));
    setEntered(found);
    setNotice("");
  };
  const leave = (why = "") => {
    api.signOut();
    if (!why) forgetDrafts(); // they stay for a caller whose token has expired
    setEntered(null);
    setNotice(why);
  };
  /** Exchange the code in the address, if it has one; it stays there until the server has decided on it. */
  const redeem = async () => {
    const { code } = parseRoute(location.hash);
    if (!code && !oidc.isBack()) return;
    try {
      await api.redeem(code ? { code } : oidc.answer());
    } catch (problem) {
      if (!problem.permanent) throw problem;
      setNotice(code ? "This sign-in link was used already or has expired." : problem.message);
    }
    if (code) navigate({ view: "tasks" }, { replace: true });
    else navigate(parseRoute(oidc.end()), { replace: true });
  };
  const isResuming = useRef(false);
  const resume = async () => {
    if (isResuming.current) return;
    isResuming.current = true;
    try {
      await redeem();
      if (api.token.get()) await enter(api.token.get(), { isKept: true });
    } catch (problem) {
      if (!problem.permanent) {
        setWaiting(problem.message);
        return void setTimeout(resume, RETRY);
      }
      leave(problem.status === 401 ? "Your token is no longer valid. Sign in again." : problem.message);
    } finally {
      isResuming.current = false;
    }
    setWaiting("");
    setReady(true);
    if (parseRoute(location.hash).code) void resume(); // of a link that was opened meanwhile
  };
  // At the start, and when a sign-in link is opened in a tab that has the page already.
  useEffect(() => {
    if (!isReady || route.code) void resume();
  }, [route.code]);

  if (route.view === "shared") {
    return html`
      <${Header} connection=${connection} route=${route} />
      <${Shared} key=${route.share} code=${route.share} />
    `;
  }
  if (entered) {
    return html`
      <${Workspace}
        ...${entered}
        key=${keyOf(entered.caller)}
        connection=${connection}
        route=${route}
        navigate=${navigate}
        onSignOut=${leave} />
    `;
  }
  return html`
    <${Header} connection=${connection} route=${route} />
    ${
      isReady && !waiting
        ? html`<${SignIn} notice=${notice} onToken=${(token) => enter(token)} />`
        : html`<main id="main"><${Loading} what=${waiting ? `${waiting} Trying again…` : "Loading…"} /></main>`
    }
  `;
}

applyTheme();
const root = document.createElement("div");
root.id = "app";
document.body.append(root);
render(
  html`
    <a
      class="skip"
      href="#main"
      onClick=${(event) => (event.preventDefault(), document.getElementById("main")?.focus())}>
      Skip to the content
    </a>
    <${App} />
  `,
  root,
);
