// A client of a MAIL server, for browsers, Node.js 20, Deno and Bun. The page uses it, too; client.d.ts has its types.

/** The status of a request that the server has not answered. */
export const UNREACHABLE = 0;

/** Kinds of events that have an answer. */
const ANSWERS = new Set(["task_complete", "task_error"]);

/** How long a stream may be silent before it counts as broken; the server sends a ping every 15 seconds. */
const SILENCE = 45_000;
const FIRST_RETRY = 500;
const LAST_RETRY = 15_000;

/**
 * A request that failed. `status` is the response's, `detail` (also `message`) its text; `permanent` if sending it
 * again won't help; `pending` lists the calls that the task waits for, if the request was refused because of them.
 */
export class MAILError extends Error {
  constructor(status, detail, { pending = [] } = {}) {
    super(detail);
    this.name = "MAILError";
    this.status = status;
    this.detail = detail;
    this.pending = pending;
    this.permanent = status !== UNREACHABLE && status < 500 && status !== 408 && status !== 429;
  }

  get isUnreachable() {
    return this.status === UNREACHABLE;
  }
}

/** Return an event of a record or stream, with its number and with its data parsed. */
export const parseEvent = ({ event, id, data }) => ({ event, id, seq: Number(id), data: JSON.parse(data) });

/** Return a new key for a request that may be sent again without being accepted twice. */
export const newKey = () =>
  Array.from(crypto.getRandomValues(new Uint32Array(4)), (part) => part.toString(36)).join("-");

/**
 * The server at a URL; "" for that of the page. `token` is the API key, or a function that returns it; `onReach` is
 * called with whether the server has answered, after each request.
 */
export class MAILClient {
  #base;
  #token;
  #onReach;

  constructor(url, { token = null, onReach = () => {} } = {}) {
    this.#base = url && `${url.replace(/\/+$/, "")}/`;
    this.#token = typeof token === "function" ? token : () => token;
    this.#onReach = onReach;
  }

  /**
   * Send a request, and return the response if its status is one of success; otherwise throw a `MAILError`.
   *
   * Query parameters that are undefined, null or empty are left out. `body` is sent as JSON, `content` as it is.
   */
  async request(method, path, { query = {}, body, content, headers = {}, signal, token = this.#token() } = {}) {
    const given = Object.entries(query).filter(([, value]) => value !== undefined && value !== null && value !== "");
    const search = new URLSearchParams(given).toString();
    const response = await this.#attempt(`${this.#base}${path}${search && `?${search}`}`, {
      method,
      signal,
      cache: "no-store",
      credentials: "omit",
      headers: {
        ...(token ? { Authorization: `Bearer ${token}` } : {}),
        ...(body ? { "Content-Type": "application/json" } : {}),
        ...headers,
      },
      body: content ?? (body && JSON.stringify(body)),
    });
    if (!response.ok) {
      const problem = await response.json().catch(() => ({}));
      throw new MAILError(response.status, problem.detail || `The server answered ${response.status}.`, {
        pending: problem.pending_tool_calls,
      });
    }
    return response;
  }

  async #attempt(url, init) {
    try {
      const response = await fetch(url, init);
      this.#onReach(true);
      return response;
    } catch (error) {
      if (init.signal?.aborted && error.name !== "TimeoutError") throw error;
      this.#onReach(false);
      throw new MAILError(UNREACHABLE, "The server can't be reached.");
    }
  }

  /** Return the JSON of a request. */
  async json(method, path, options) {
    return (await this.request(method, path, options)).json();
  }

  /**
   * Send a message, a text or the body of `POST /message`, and return the id of its task at once. With the same `key`
   * it is accepted only once, however often it is sent.
   */
  async send(message, { key, signal } = {}) {
    const headers = { Prefer: "respond-async", ...(key ? { "Idempotency-Key": key } : {}) };
    const body = typeof message === "string" ? { body: message } : message;
    const response = await this.request("POST", "message", { body, headers, signal });
    return (await response.json()).task_id ?? decodeURIComponent(response.headers.get("X-Task-ID"));
  }

  /**
   * Send a message, follow its task until that stops, and return `{task_id, status, response, pending}`. `onEvent` gets
   * each event; the other options are those of `stream`. `pending` are the calls that a paused task waits for.
   */
  async ask(message, { onEvent = () => {}, key = newKey(), signal, ...options } = {}) {
    const known = message.task_id ? await this.task(message.task_id, { signal }).catch(orNull) : null;
    const body = typeof message === "string" ? { body: message } : message;
    const wanted = options.deltas ? { ...body, deltas: true } : body; // the first call comes before the stream is open
    const id = await this.send(wanted, { key, signal });
    return this.#finish(id, known, { onEvent, signal, ...options });
  }

  async #finish(id, known, { onEvent = () => {}, ...options }) {
    let response = null;
    for await (const event of this.stream(id, { after: known?.seq ?? 0, ...options })) {
      onEvent(event);
      if (ANSWERS.has(event.event)) response = event.data.response;
    }
    const { status, pending_tool_calls: pending = [] } = await this.task(id, options);
    return { task_id: id, status, response, pending };
  }

  /** Decide on a call of a paused task that needs approval, and follow the task as `ask` does. */
  approve(id, callId, { arguments: edited, reason, ...options } = {}) {
    const decision = edited ? "edit" : "approve";
    return this.#resume(id, { approvals: [{ call_id: callId, decision, arguments: edited, reason }] }, options);
  }

  /** Reject such a call; the agent reads the reason. */
  reject(id, callId, { reason, ...options } = {}) {
    return this.#resume(id, { approvals: [{ call_id: callId, decision: "reject", reason }] }, options);
  }

  /** Answer the calls of a paused task: with a text for a single one, or a list of `{call_id, content}`. */
  reply(id, results, options = {}) {
    const given = typeof results === "string" ? { content: results } : results;
    return this.#resume(id, { breakpoint_tool_call_result: given }, options);
  }

  #resume(id, kwargs, options) {
    return this.ask({ body: "", task_id: id, resume_from: "breakpoint_tool_call", kwargs }, options);
  }

  /** Return a task, without its events. */
  task(id, { signal } = {}) {
    return this.json("GET", "task", { query: { task_id: id, fields: "summary" }, signal });
  }

  /** Return the calls that wait for a decision of the caller, in tasks of the caller's own and of others. */
  approvals({ cursor, signal } = {}) {
    return this.json("GET", "approvals", { query: { cursor }, signal });
  }

  /**
   * The events of a task past `after`, as `{event, id, seq, data}`, until it stops. A stream that breaks off resumes
   * after the last event. With `live` there are events without an id of what happens now, with `deltas` also the text
   * that models write, with `items` what events change in the conversation. `onState` hears `live` and `reconnecting`.
   */
  async *stream(id, { after = 0, live = false, deltas = false, items = false, signal, onState } = {}) {
    const open = (last, aborted) =>
      this.request("GET", "task/stream", {
        query: { task_id: id, live: live || deltas || "", deltas: deltas || "", items: items || "" },
        headers: { Accept: "text/event-stream", "Last-Event-ID": String(last) },
        signal: aborted,
      });
    for await (const event of follow(open, { after, signal, onState }))
      if (event.event !== "ping") yield parseEvent(event);
  }

  /** Cancel a task, without waiting for what still runs to end. */
  cancel(id) {
    return this.json("POST", "task/cancel", { body: { task_id: id }, headers: { Prefer: "wait=0" } });
  }

  /** Upload a `File` or `Blob`; returns the reference whose `id` goes into `files` of a message. */
  upload(file, { name = file.name, signal } = {}) {
    const headers = { "Content-Type": file.type || "application/octet-stream" };
    return this.json("POST", "files", { query: { name }, content: file, headers, signal });
  }

  /** Return a file as a `Blob`. */
  async file(id) {
    return (await this.request("GET", `files/${encodeURIComponent(id)}`)).blob();
  }
}

function orNull(error) {
  if (error.status === 404) return null;
  throw error;
}

// ------------------------------------------------------------------------------------------ Server-Sent Events
// Through fetch, as an EventSource can't send an Authorization header.

/** The events of a body: `{event, id, data}`, by the rules of the HTML standard, section 9.2.6. */
export async function* parseEvents(chunks) {
  const decoder = new TextDecoder();
  let rest = "";
  let event = { event: "message", id: null, data: [] };
  for await (const chunk of chunks) {
    rest += decoder.decode(chunk, { stream: true });
    // A \r at the end may be the first half of a line end.
    const lines = rest.split(/\r\n|\n|\r(?!$)/);
    rest = lines.pop();
    for (const line of lines) {
      if (line === "") {
        if (event.data.length) yield { ...event, data: event.data.join("\n") };
        event = { event: "message", id: null, data: [] };
        continue;
      }
      const colon = line.indexOf(":");
      if (colon === 0) continue; // a comment
      const name = colon < 0 ? line : line.slice(0, colon);
      const value = colon < 0 ? "" : line.slice(colon + 1).replace(/^ /, "");
      if (name === "event") event.event = value;
      else if (name === "id") event.id = value;
      else if (name === "data") event.data.push(value);
    }
  }
}

/** Wait; ends early, without an error, when the signal aborts. */
function pause(milliseconds, signal) {
  return new Promise((resolve) => {
    const timer = setTimeout(resolve, milliseconds);
    signal.addEventListener("abort", () => (clearTimeout(timer), resolve()), { once: true });
  });
}

async function* readBody(body, onChunk) {
  const reader = body.getReader();
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      onChunk();
      yield value;
    }
  } finally {
    reader.cancel().catch(() => {});
  }
}

/**
 * The events past `after`, until the server says by 204 that there won't be more.
 *
 * `open(after, signal)` asks for them and returns the Response, which must be one of 200 and 204; an error of its own
 * with `permanent` set ends everything, any other one is tried again. `onState` hears `live` and `reconnecting`.
 */
export async function* follow(open, { after, signal = new AbortController().signal, onState = () => {} }) {
  let retry = FIRST_RETRY;
  while (!signal.aborted) {
    const attempt = new AbortController();
    const stop = () => attempt.abort();
    signal.addEventListener("abort", stop);
    let watchdog;
    let progress = false;
    let ended = false;
    const alive = () => {
      clearTimeout(watchdog);
      watchdog = setTimeout(stop, SILENCE);
    };
    try {
      alive();
      const response = await open(after, attempt.signal);
      if (response.status === 204) return;
      onState("live");
      for await (const event of parseEvents(readBody(response.body, alive))) {
        if (event.id !== null) {
          if (Number(event.id) <= after) continue; // seen before
          after = Number(event.id);
        }
        if (event.id !== null || event.event === "ping") {
          retry = FIRST_RETRY;
          progress = true;
        }
        yield event;
      }
      ended = true;
    } catch (error) {
      if (signal.aborted) return;
      if (error.permanent) throw error;
    } finally {
      clearTimeout(watchdog);
      signal.removeEventListener("abort", stop);
      attempt.abort();
    }
    if (ended && progress) continue; // as at the end of a task, or of the server's patience
    onState("reconnecting");
    await pause(retry, signal);
    retry = Math.min(retry * 2, LAST_RETRY);
  }
}
