// What the page shows, as the hash of its address: `#task=ID&tab=trace&at=SEQ&entry=SEQ&compare`, `#new`, both with the
// filter of the list, `&q=WORDS&status=STATE&changed=WHEN`, `#approvals`, `#mail=BOX&entry=ID`, `#swarm`,
// `#admin=PAGE`, `#sign-in=CODE`, `#shared=CODE`.

export const TABS = ["conversation", "trace", "graph"];

/** What the list of tasks can be filtered by. */
const FILTERS = ["q", "status", "changed"];

const number = (text) => (/^\d+$/.test(text ?? "") ? Number(text) : null);

/** Return the route of a hash: `view`, and what belongs to it. */
export function parseRoute(hash) {
  const given = new URLSearchParams(hash.replace(/^#/, ""));
  if (given.has("sign-in")) return { view: "sign-in", code: given.get("sign-in") };
  if (given.has("shared")) return { view: "shared", share: given.get("shared") };
  if (given.has("approvals")) return { view: "approvals" };
  if (given.has("mail")) return { view: "mail", box: given.get("mail") || "inbox", entry: given.get("entry") || null };
  if (given.has("swarm")) return { view: "swarm", agent: given.get("swarm") || null };
  if (given.has("admin")) return { view: "admin", page: given.get("admin") || null };
  const task = given.get("task") || null;
  const filter = Object.fromEntries([...given].filter(([name, value]) => value && FILTERS.includes(name)));
  if (!task) return { view: "tasks", task, isNew: given.has("new"), filter, tab: TABS[0], at: null, entry: null };
  const tab = TABS.includes(given.get("tab")) ? given.get("tab") : TABS[0];
  const [at, entry] = [number(given.get("at")), number(given.get("entry"))];
  return { view: "tasks", task, filter, tab, at, entry, isComparing: given.has("compare") };
}

/** Return the hash of a route, without `#`. */
export function formatRoute(route) {
  if (route.view === "approvals") return "approvals";
  if (route.view === "mail") {
    const { box = "inbox", entry } = route;
    return entry ? new URLSearchParams({ mail: box, entry }).toString() : `mail${box === "inbox" ? "" : `=${box}`}`;
  }
  if (route.view === "swarm") return route.agent ? `swarm=${encodeURIComponent(route.agent)}` : "swarm";
  if (route.view === "admin") return route.page ? `admin=${encodeURIComponent(route.page)}` : "admin";
  if (route.view === "sign-in") return `sign-in=${encodeURIComponent(route.code)}`;
  if (route.view === "shared") return `shared=${encodeURIComponent(route.share)}`;
  const given = new URLSearchParams(route.task ? { task: route.task } : {});
  if (route.task && route.tab && route.tab !== TABS[0]) given.set("tab", route.tab);
  for (const name of ["at", "entry"]) if (route[name] != null) given.set(name, route[name]);
  for (const name of FILTERS) if (route.filter?.[name]) given.set(name, route.filter[name]);
  const flag = route.task ? route.isComparing && "compare" : route.isNew && "new";
  return [route.task ? given.toString() : flag, route.task ? flag : given.toString()].filter(Boolean).join("&");
}

/**
 * Return the route after a change: `{view, …}` leads to another view, `{task}` to another task, and `{tab, at, entry}`
 * change how the open task is shown; null removes one. The filter of the list stays while tasks are shown.
 */
export function stepRoute(route, change) {
  const first = { ...parseRoute(""), filter: change.view && change.view !== route.view ? {} : (route.filter ?? {}) };
  if (change.view) return { ...first, ...change };
  if (change.task !== undefined && change.task !== route.task) return { ...first, ...change, view: "tasks" };
  return { ...route, ...change };
}
