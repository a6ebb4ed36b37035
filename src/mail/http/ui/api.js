// The server's endpoints. Paths are relative to the page, so that it works below any path.

const TOKEN = "mail-token";

/** What an HTTP header can carry. */
const SENDABLE = /^[\x21-\x7e]+$/;

/** The status of a request that the server has not answered. */
export const UNREACHABLE = 0;

/** What the server has against a request; `permanent` where sending it again won't help, `isQuestion` where it waits. */
export class Problem extends Error {
  constructor(status, detail, { isQuestion = false } = {}) {
    super(detail);
    this.isQuestion = isQuestion;
    this.status = status;
    this.permanent = status !== UNREACHABLE && status < 500 && status !== 408 && status !== 429;
  }
}

export const token = {
  get: () => sessionStorage.getItem(TOKEN),
  forget: () => sessionStorage.removeItem(TOKEN),
};

/** A fetch whose failure is a Problem, in words that don't depend on the browser. */
async function attempt(path, init) {
  try {
    return await fetch(path, init);
  } catch (error) {
    if (init.signal?.aborted) throw error;
    throw new Problem(UNREACHABLE, "The server can't be reached.");
  }
}

async function request(method, path, { query = {}, body, headers = {}, signal, bearer = token.get() } = {}) {
  const given = Object.entries(query).filter(([, value]) => value !== undefined && value !== null && value !== "");
  const search = new URLSearchParams(given).toString();
  const response = await attempt(search ? `${path}?${search}` : path, {
    method,
    signal,
    cache: "no-store",
    credentials: "omit",
    headers: {
      ...(bearer ? { Authorization: `Bearer ${bearer}` } : {}),
      ...(body ? { "Content-Type": "application/json" } : {}),
      ...headers,
    },
    body: body && JSON.stringify(body),
  });
  if (!response.ok) {
    const problem = await response.json().catch(() => ({}));
    const isQuestion = Boolean(problem.pending_tool_calls?.length);
    throw new Problem(response.status, problem.detail || `the server answers ${response.status}`, { isQuestion });
  }
  return response;
}

const read = async (path, query) => (await request("GET", path, { query })).json();

/** Who the bearer of a token is. A token that the server takes is kept, for as long as the tab is open. */
export async function signIn(bearer) {
  if (!SENDABLE.test(bearer)) throw new Problem(401, "A token has no spaces in it, and no letters but A to Z.");
  const caller = await (await request("GET", "whoami", { bearer })).json();
  sessionStorage.setItem(TOKEN, bearer);
  return caller;
}

export const health = () => read("health");
export const swarm = () => read("swarm");
export const otherSwarms = async () => (await read("swarms")).swarms;
/** A task's record; as it was once the event `at` had happened, where that is given. */
export const task = (id, at) => read("task", { task_id: id, at });

/** A page of tasks, newest first, and the cursor of the next one. */
export async function tasks({ cursor, status, limit = 20 }) {
  const response = await request("GET", "tasks", { query: { cursor, status, limit, fields: "summary" } });
  // An object's members lose their order where ids look like numbers.
  const records = Object.values(await response.json());
  records.sort((a, b) => Date.parse(b.start_time) - Date.parse(a.start_time));
  return { records, cursor: response.headers.get("X-Next-Cursor") };
}

/** Send a message without waiting for the answer; returns the task's id. */
export async function send(message) {
  const headers = { Prefer: "respond-async" };
  const response = await request("POST", "message", { body: message, headers });
  return (await response.json()).task_id ?? decodeURIComponent(response.headers.get("X-Task-ID"));
}

/** Cancel a task, without waiting for what still runs to end. */
export const cancel = (id) => request("POST", "task/cancel", { body: { task_id: id }, headers: { Prefer: "wait=0" } });

/** Make a new task that continues another task from an event (undefined: now); returns its id. */
export async function fork(id, at) {
  const response = await request("POST", "task/fork", { body: { task_id: id, at } });
  return (await response.json()).task_id;
}

/** The stream of a task's events past `after`, with live events between them. */
export const stream = (id, after, signal) =>
  request("GET", "task/stream", {
    query: { task_id: id, live: true },
    headers: { Accept: "text/event-stream", "Last-Event-ID": String(after) },
    signal,
  });
