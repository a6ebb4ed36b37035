// Server-Sent Events through fetch, as an EventSource can't send an Authorization header.

/** How long a stream may be silent before it counts as broken; the server sends a ping every 15 seconds. */
const SILENCE = 45_000;
const FIRST_RETRY = 500;
const LAST_RETRY = 15_000;

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
export async function* follow(open, { after, signal, onState = () => {} }) {
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
