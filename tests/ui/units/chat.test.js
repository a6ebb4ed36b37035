import assert from "node:assert/strict";
import { test } from "node:test";

import { Chat, jsonOf, questionOf, summary } from "./ui/conversation/chat.js";

/** Events of a task, a second apart. */
function events(...given) {
  return given.map(([event, data], index) => ({ seq: index + 1, event, data: { timestamp: `2026-01-01T00:00:${String(index).padStart(2, "0")}Z`, ...data } }));
}

const mail = (type, from, to, body, msg_type = "request") => [
  "new_message",
  { extra_data: { full_message: { msg_type, message: { sender: { address_type: type, address: from }, recipient: { address_type: "agent", address: to }, subject: "S", body } } } },
];
const call = (agent, tool_name, tool_args = {}, tool_call_id = "c") => ["tool_call", { extra_data: { agent, tool_name, tool_args, tool_call_id } }];
const kinds = (chat) => chat.items.map(({ kind }) => kind);

const ASKED = events(
  mail("user", "ann", "supervisor", "weather and sums"),
  call("supervisor", "send_request"),
  mail("agent", "supervisor", "weather", "weather?"),
  mail("agent", "supervisor", "math", "2+3"),
  call("weather", "get_forecast", { city: "Oslo" }),
  ["action_error", { description: "no such city", extra_data: { agent: "weather" } }],
  mail("agent", "weather", "supervisor", "dry", "response"),
  ["task_complete", { response: "It is dry. 5." }],
);

test("a question, one item of work, and the answer", () => {
  const chat = new Chat().read(ASKED);
  assert.deepEqual(kinds(chat), ["message", "work", "answer"]);
  const [message, work, answer] = chat.items;
  assert.deepEqual([message.who, message.text, answer.text], ["ann", "weather and sums", "It is dry. 5."]);
  assert.equal(summary(work), "supervisor asked weather and math");
  assert.deepEqual([work.mail.length, work.actions.length, work.errors.length, work.isRunning], [3, 1, 1, false]);
  assert.equal(Date.parse(work.ended) - Date.parse(work.began), 7000);
});

test("actions have their results, also those that were approved", () => {
  const book = { call_id: "b", name: "book", arguments: "{}", needs_approval: true };
  const chat = new Chat().read(
    events(
      mail("user", "ann", "supervisor", "book it"),
      call("supervisor", "look", {}, "l"),
      call("supervisor", "look", {}, "m"),
      ["action_complete", { description: "action complete (caller = supervisor):\nrain", extra_data: { agent: "supervisor" } }],
      ["action_error", { description: "action error (caller = supervisor):\nlost", extra_data: { agent: "supervisor" } }],
      call("supervisor", "book", {}, "b"),
      ["breakpoint_tool_call", { extra_data: { agent: "supervisor" } }],
      ["task_complete", { response: JSON.stringify([book]) }],
      ["breakpoint_action_complete", { description: "", extra_data: { agent: "supervisor", tool_call_id: "b", decision: "approve", by: "user:ann@x" } }],
      ["action_complete", { description: "action complete (caller = supervisor):\nbooked", extra_data: { agent: "supervisor" } }],
    ),
  );
  const [, work, question] = chat.items;
  assert.deepEqual([work.actions.map(({ result }) => result), work.errors.length], [["rain", ""], 1]);
  assert.deepEqual([question.reply.decision, question.result], ["approve", "booked"]);
});

test("text that a model writes instead of calling a tool is no action", () => {
  const chat = new Chat().read(events(mail("user", "ann", "supervisor", "hello"), call("supervisor", "text_output", { content: "Hi" }), ["task_complete", { response: "Hi" }]));
  const [, work, answer] = chat.items;
  assert.deepEqual([work.actions, summary(work), answer.text], [[], "supervisor worked", "Hi"]);
});

test("what an agent still does in a cancelled task is part of its work before", () => {
  const chat = new Chat().read(
    events(mail("user", "ann", "supervisor", "dig"), call("supervisor", "send_request"), ["task_cancelled", { description: "cancelled" }], ["turn_discarded", { extra_data: { agent: "worker" } }]),
  );
  assert.deepEqual(kinds(chat), ["message", "work", "cancelled"]);
});

test("events that come later are added to what was read", () => {
  const chat = new Chat();
  const growing = ASKED.slice(0, 4);
  assert.deepEqual(kinds(chat.read(growing)), ["message", "work"]);
  assert.equal(chat.items[1].isRunning, true);
  growing.push(...ASKED.slice(4));
  assert.deepEqual(kinds(chat.read(growing)), ["message", "work", "answer"]);
});

test("a pause is a question, and its result the answer to it", () => {
  const calls = JSON.stringify([{ name: "ask_human", id: "c1", arguments: '{"question": "May I?"}' }]);
  const chat = new Chat().read(
    events(
      mail("user", "ann", "supervisor", "go"),
      call("supervisor", "ask_human", { question: "May I?" }, "c1"),
      ["breakpoint_tool_call", { extra_data: { agent: "supervisor" } }],
      ["task_complete", { response: calls }],
      ["breakpoint_action_complete", { description: "breakpoint action complete (caller = supervisor):\nyes\nindeed", extra_data: { agent: "supervisor" } }],
      ["task_complete", { response: "You said yes." }],
    ),
  );
  assert.deepEqual(kinds(chat), ["message", "work", "question", "work", "answer"]);
  const question = chat.items[2];
  assert.deepEqual([question.agent, question.args, question.reply.text], ["supervisor", { question: "May I?" }, "yes\nindeed"]);
  assert.deepEqual(chat.items[1].actions, [], "the question is not an action beside itself");
});

test("a question that is a message to the user is shown in its words, and its answer once", () => {
  const full_message = { msg_type: "request", message: { sender: { address_type: "agent", address: "supervisor" }, recipient: { address_type: "user", address: "ann" }, subject: "Budget", body: "How much?" } };
  const chat = new Chat().read(
    events(
      mail("user", "ann", "supervisor", "go"),
      ["new_message", { extra_data: { full_message } }],
      ["breakpoint_tool_call", { extra_data: { agent: "supervisor" } }],
      ["task_complete", { response: JSON.stringify([{ name: "ask_budget", call_id: "c1", arguments: "{}" }]) }],
      ["breakpoint_action_complete", { description: "breakpoint action complete (caller = supervisor):\nten", extra_data: { agent: "supervisor" } }],
      mail("user", "ann", "supervisor", "ten", "response"),
      ["task_complete", { response: "Ten it is." }],
    ),
  );
  assert.deepEqual(kinds(chat).filter((kind) => kind !== "work"), ["message", "question", "answer"]);
  const question = chat.items.find(({ kind }) => kind === "question");
  assert.deepEqual([question.asked, question.reply.text], [{ subject: "Budget", text: "How much?" }, "ten"]);
});

test("each approval is decided by its id, and the rest stays", () => {
  const paused = (...ids) => ["task_complete", { response: JSON.stringify(ids.map((call_id) => ({ name: "pay", call_id, arguments: "{}", needs_approval: true }))) }];
  const chat = new Chat().read(
    events(
      mail("user", "ann", "payer", "pay"),
      ["breakpoint_tool_call", { extra_data: { agent: "payer" } }],
      paused("a", "b"),
      ["breakpoint_action_complete", { extra_data: { agent: "payer", tool_call_id: "b", decision: "reject", by: "user:ann@bank", reason: "no" } }],
      ["breakpoint_tool_call", { extra_data: { agent: "payer", tool_call_id: "a", needs_approval: true } }],
      paused("a"),
    ),
  );
  const [a, b] = chat.items.filter(({ kind }) => kind === "question");
  assert.equal(a.reply, null);
  assert.deepEqual([b.reply.decision, b.reply.by, b.reply.reason], ["reject", "ann", "no"]);
});

test("a decision that leaves other calls waiting is no turn", () => {
  const timestamp = "2026-01-01T00:00:09Z";
  const chat = new Chat().read(
    events(
      mail("user", "ann", "payer", "pay"),
      ["breakpoint_tool_call", { extra_data: { agent: "payer" } }],
      ["task_complete", { response: "[]" }],
      ["breakpoint_action_complete", { timestamp, extra_data: { agent: "payer", tool_call_id: "b", decision: "reject" } }],
      ["breakpoint_tool_call", { timestamp, extra_data: { agent: "payer", tool_call_id: "a", needs_approval: true } }],
      ["task_complete", { timestamp, response: "[]" }],
    ),
  );
  assert.deepEqual(chat.items.filter(({ kind }) => kind === "work").map(({ turns }) => turns), [1, 0]);
});

test("a failure is said once", () => {
  const time = { timestamp: "2026-01-01T00:00:09Z" };
  const chat = new Chat().read(
    events(mail("user", "ann", "lead", "go"), ["agent_error", { ...time, description: "agent 'lead' failed", extra_data: { agent: "lead" } }], ["task_error", { ...time, response: "agent 'lead' has failed" }]),
  );
  assert.deepEqual(kinds(chat), ["message", "work", "failed"]);
  assert.deepEqual(chat.items[1].errors, []);
});

test("a cancellation ends the conversation, without a second error", () => {
  const chat = new Chat().read(events(mail("user", "ann", "lead", "go"), ["task_cancelled", { description: "The task was cancelled by ann." }], ["task_error", { response: "The task was cancelled by ann." }]));
  assert.deepEqual(kinds(chat).filter((kind) => kind !== "work"), ["message", "cancelled"]);
});

test("the question of a call in words", () => {
  assert.deepEqual(questionOf({ question: "May I?", urgent: true }), { words: "May I?", others: { urgent: true } });
  assert.deepEqual(questionOf({ anything: "Really?" }), { words: "Really?", others: {} });
  assert.deepEqual(questionOf({ to: "bob", amount: 3 }), { words: "", others: { to: "bob", amount: 3 } });
});

test("answers that are JSON", () => {
  assert.deepEqual(jsonOf('{"a": 1}'), { a: 1 });
  assert.equal(jsonOf("{not json"), undefined);
  assert.equal(jsonOf("84"), undefined);
});
