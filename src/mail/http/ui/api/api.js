// The server's endpoints, as the page needs them. Paths are relative to the page, so that it works below any path.

import { MAILClient, newKey, parseEvent, MAILError as Problem } from "./client.js";

export { newKey, Problem };

const TOKEN = "mail-token";
const SESSION = "mail-session";
const ADMIN = "mail-admin";

/** What an HTTP header can carry. */
const SENDABLE = /^[\x21-\x7e]+$/;

/** Milliseconds after which a server that says nothing counts as unreachable, for what is asked again and again. */
const TIMEOUT = 8_000;

/** Events on a page of a task. */
const EVENTS = 1_000;

/**
 * The token of this tab; `isSession` if a sign-in link was exchanged for it. A link may bring a second one, of an
 * admin, for requests that say `bearer: token.ofAdmin()`: those of the views Admin and Approvals, and for the prompts
 * of agents.
 */
export const token = {
  get: () => sessionStorage.getItem(TOKEN),
  ofAdmin: () => sessionStorage.getItem(ADMIN) ?? token.get(),
  get isSession() {
    return sessionStorage.getItem(SESSION) !== null;
  },
  keep(bearer, { isSession = false, admin = null } = {}) {
    sessionStorage.setItem(TOKEN, bearer);
    if (isSession) sessionStorage.setItem(SESSION, "");
    if (admin) sessionStorage.setItem(ADMIN, admin);
  },
  forget() {
    for (const name of [TOKEN, SESSION, ADMIN]) sessionStorage.removeItem(name);
  },
};

/** Called with whether the server answered, after each request. */
let onReach = () => {};
export const listen = (listener) => (onReach = listener);

let skew = 0; // milliseconds by which the server's clock is ahead of this one

/** Milliseconds since 1970 by the server's clock. */
export const serverNow = () => Date.now() + skew;

const client = new MAILClient("", { token: () => token.get(), onReach: (isReached) => onReach(isReached) });

/** Send a request as `MAILClient.request` does, with the token of this tab or another `bearer`. */
export const request = (method, path, { bearer = token.get(), ...options } = {}) =>
  client.request(method, path, { token: bearer, ...options });

/** Return the JSON of a GET request. */
export const read = async (path, query, options) => (await request("GET", path, { query, ...options })).json();

/** Return the JSON of a POST request. */
export const post = async (path, body, options) => (await request("POST", path, { body, ...options })).json();

/**
 * Return `{caller, swarm}`: whose token this is, with `isAdmin` if the tab has an admin's, and the swarm. Throws a
 * `Problem` for one that is not valid.
 */
export async function signIn(bearer) {
  if (!SENDABLE.test(bearer)) throw new Problem(401, "Invalid or revoked token.");
  const caller = await read("whoami", {}, { bearer });
  const isAdmin = caller.role === "admin" || sessionStorage.getItem(ADMIN) !== null;
  return { caller: { ...caller, isAdmin }, swarm: await read("swarm", {}, { bearer }) };
}

/** Return the identity provider at which people sign in; null for none. */
export const identityProvider = async () => (await read("sign-in", {}, { bearer: null })).provider;

/**
 * Exchange a code, which works once, for a token, and keep it; a session that it replaces ends. `given` has the `code`
 * of a sign-in link, or one of the identity provider with its `verifier` and `redirect_uri`.
 */
export async function redeem(given) {
  const { token: bearer, admin_token: admin } = await post("sign-in", given, { bearer: null });
  signOut();
  token.keep(bearer, { isSession: true, admin });
}

/** Forget the token; a session ends at the server, too, and with it the admin's. */
export function signOut() {
  if (token.isSession) request("POST", "sign-out").catch(() => {}); // it expires by itself otherwise
  token.forget();
}

/** Return the server's health, and set `serverNow` by its clock. */
export async function health() {
  const asked = Date.now();
  const answer = await read("health", {}, { bearer: null, signal: AbortSignal.timeout(TIMEOUT) });
  const now = Date.now();
  skew = Date.parse(answer.timestamp) - (asked + now) / 2 || 0;
  return answer;
}

export const otherSwarms = async () => (await read("swarms")).swarms;

/**
 * Return `{record, events, items, isComplete}`: a task's record, and a page of the events after `after` with the
 * items of the conversation that they change. Unless `isComplete`, more events follow.
 */
export async function task(id, { after = 0, signal } = {}) {
  const response = await request("GET", "task", { query: { task_id: id, after, limit: EVENTS, items: true }, signal });
  const { events, items, ...record } = await response.json();
  return { record, events: events.map(parseEvent), items, isComplete: !response.headers.get("X-Next-Cursor") };
}

/** Return a task's record as of the event `at`, without its events and with the items of its conversation. */
export async function taskAt(id, at) {
  const { events, ...record } = await read("task", { task_id: id, at, items: true });
  return record;
}

/**
 * Return a page of the tasks that have the words `q`, and what else `GET /tasks` takes; the cursor of the next page,
 * what was `searched`, and the time by which they are in `order`, the latest first: a server without an index has
 * them as they began.
 */
export async function tasks({ q, limit = 20, ...others } = {}) {
  const response = await request("GET", "tasks", {
    query: { limit, fields: "summary", q: q || " ", ...others }, // an empty parameter would be left out
    signal: AbortSignal.timeout(TIMEOUT),
  });
  // An object's members lose their order where ids look like numbers.
  const records = Object.values(await response.json());
  const searched = response.headers.get("X-Searched");
  const order = searched === "titles" ? "start_time" : "updated";
  records.sort(byLatest(order));
  return { records, cursor: response.headers.get("X-Next-Cursor"), searched, order };
}

/** Return what sorts records by a time, the latest first. */
export const byLatest = (time) => (a, b) => Date.parse(b[time]) - Date.parse(a[time]);

/** The key of a message that may have to be sent again: it stays as long as the message does. */
export class RetryKey {
  #message = "";
  #key = "";

  of(message) {
    const text = JSON.stringify(message);
    if (text !== this.#message) this.#key = newKey();
    this.#message = text;
    return this.#key;
  }
}

/** Send a message without waiting for the answer, of which a stream then shows each piece; returns the task's id. */
export const send = (message, options) => client.send({ ...message, deltas: true }, options);

/** Resume a paused task with what its calls wait for: results, or `approvals`. */
export const resume = (id, kwargs) => send({ body: "", task_id: id, resume_from: "breakpoint_tool_call", kwargs });

/** Upload a `File` of the browser; returns the reference that messages have of it. */
export const upload = (file) => client.upload(file);

/** Return a file as a `Blob`. */
export const file = (id) => client.file(id);

/** Cancel a task, without waiting for what still runs to end. */
export const cancel = (id) => client.cancel(id);

/** Cancel a call or a timer of a task: a wait of the kind "call", "reminder" or "message", by its id. */
export const cancelWait = (task, { kind, id }) =>
  request("DELETE", `task/${kind === "call" ? "calls" : "timers"}/${encodeURIComponent(id)}`, {
    query: { task_id: task },
  });

/** Delete a task that has stopped, with everything that it stores. */
export const deleteTask = (id) => request("DELETE", "task", { query: { task_id: id } });

/** Make a link with which others can read a task, for some days; returns its `code` and `number`. */
export const share = (id, days) => post("task/shares", { task_id: id, days });

/** Return the links to a task that can be used. */
export const shares = async (id) => (await read("task/shares", { task_id: id })).shares;

export const revokeShare = (id, number) =>
  request("DELETE", `task/shares/${encodeURIComponent(number)}`, { query: { task_id: id } });

/** Return what the link with a code shows of its task after an event. */
export const shared = (code, { after, signal }) => read("task/shared", { after }, { bearer: code, signal });

/** Make a new task that continues another task from an event (undefined: now); returns its id. */
export const fork = async (id, at, { actions, draft, run = false } = {}) =>
  (await post("task/fork", { task_id: id, at, run, actions, draft })).task_id;

/** Process a task's dead letters again: the one of this event, or all. */
export const redrive = (id, seq) => post("dead-letters/redrive", { task_id: id, seq });

/**
 * The stream of a task's events past `after`, with the items that they change, live events and the text that models
 * write between them.
 */
export const stream = (id, options) => client.stream(id, { live: true, deltas: true, items: true, ...options });
