import assert from "node:assert/strict";
import { test } from "node:test";

import { follow, parseEvents } from "./ui/api/client.js";

const encode = (text) => new TextEncoder().encode(text);

async function collect(events) {
  const all = [];
  for await (const event of events) all.push(event);
  return all;
}

const STREAM = 'event: a\nid: 1\ndata: {"x": "ü"}\n\n: comment\ndata:one\ndata: two\n\nevent: none\n\nid: 3\r\ndata: 3\r\n\r\n';
const EVENTS = [
  { event: "a", id: "1", data: '{"x": "ü"}' },
  { event: "message", id: null, data: "one\ntwo" },
  { event: "message", id: "3", data: "3" },
];

test("events are read wherever the chunks are cut", async () => {
  const bytes = encode(STREAM);
  for (let size = 1; size <= bytes.length; size++) {
    const chunks = [];
    for (let at = 0; at < bytes.length; at += size) chunks.push(bytes.slice(at, at + size));
    assert.deepEqual(await collect(parseEvents(chunks)), EVENTS);
  }
});

test("an event that broke off is dropped", async () => {
  assert.deepEqual(await collect(parseEvents([encode("data: 1\n\ndata: 2\n")])), [{ event: "message", id: null, data: "1" }]);
});

test("a broken stream resumes after the last event, until there is nothing more", async () => {
  const asked = [];
  const states = [];
  const answers = [
    () => new Response("id: 1\ndata: 1\n\nid: 2\ndata: 2\n\nid: 3\nda"),
    () => Promise.reject(new TypeError("network")),
    () => new Response("id: 2\ndata: 2\n\nid: 3\ndata: 3\n\n"),
    () => new Response(null, { status: 204 }),
  ];
  const open = async (after) => (asked.push(after), answers.shift()());
  const events = await collect(
    follow(open, { after: 0, signal: new AbortController().signal, onState: (state) => states.push(state) }),
  );
  assert.deepEqual(events.map((event) => event.id), ["1", "2", "3"]);
  assert.deepEqual(asked, [0, 2, 2, 3]);
  assert.deepEqual(states, ["live", "reconnecting", "live"]);
});

test("a stream that ends by itself after a quiet time is resumed at once", async () => {
  const states = [];
  const answers = [
    () => new Response('event: ping\ndata: {}\n\n'),
    () => new Response("id: 1\ndata: 1\n\n"),
    () => new Response(null, { status: 204 }),
  ];
  const open = async () => answers.shift()();
  const events = await collect(follow(open, { after: 0, signal: new AbortController().signal, onState: (state) => states.push(state) }));
  assert.deepEqual(events.map((event) => event.event), ["ping", "message"]);
  assert.deepEqual(states, ["live", "live"]);
});

test("what won't get better ends it", async () => {
  const open = () => Promise.reject(Object.assign(new Error("unknown task"), { permanent: true }));
  await assert.rejects(collect(follow(open, { after: 0, signal: new AbortController().signal })), /unknown task/);
});

test("it can be stopped", async () => {
  const stop = new AbortController();
  const open = async (after, signal) =>
    new Response(new ReadableStream({ start: (stream) => (stream.enqueue(encode("id: 1\ndata: 1\n\n")), signal.addEventListener("abort", () => stream.error(signal.reason))) }));
  const seen = [];
  for await (const event of follow(open, { after: 0, signal: stop.signal })) {
    seen.push(event.id);
    setTimeout(() => stop.abort());
  }
  assert.deepEqual(seen, ["1"]);
});
