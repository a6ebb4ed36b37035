// What the client does with a server whose agent pays after approval, in Node.js and in a browser.

async function scenario(MAILClient, url, token) {
  const assert = (is, what) => {
    if (!is) throw new Error(what);
  };
  const mail = new MAILClient(url, { token });

  // the first stream of a task breaks off in the middle of an event
  const plain = globalThis.fetch;
  const asked = [];
  globalThis.fetch = async (target, init) => {
    const response = await plain(target, init);
    if (!String(target).includes("task/stream")) return response;
    asked.push(init.headers["Last-Event-ID"]);
    if (asked.length > 1) return response;
    const text = async () => {
      const reader = response.body.getReader();
      let read = "";
      for (;;) {
        const { done, value } = await reader.read();
        read += new TextDecoder().decode(value);
        const third = read.split("\n\n", 3).join("\n\n").length;
        if (done || read.split("\n\n").length > 3) return (void reader.cancel(), read.slice(0, third - 5));
      }
    };
    return new Response(await text(), response);
  };

  const numbers = [];
  const states = [];
  const file = await mail.upload(new File(["the plan"], "plan.txt", { type: "text/plain" }));
  const message = { body: "pay 200", files: [file.id] };
  const options = { onEvent: ({ seq }) => seq && numbers.push(seq), onState: (state) => states.push(state) };
  const paused = await mail.ask(message, { key: "once", ...options });
  globalThis.fetch = plain;
  assert(asked[0] === "0" && Number(asked[1]) > 0, `resumed after ${asked}`);
  assert(
    numbers.every((seq, n) => seq === n + 1),
    `each event once: ${numbers}`,
  );
  const [call] = paused.pending;
  assert(paused.status === "paused" && call.name === "pay" && call.needs_approval, JSON.stringify(paused));
  assert((await (await mail.file(file.id)).text()) === "the plan", "the file");

  const refused = await mail.ask({ body: "and more", task_id: paused.task_id }).catch((error) => error);
  assert(refused.status === 409 && refused.permanent && refused.pending.length === 1, String(refused));
  const paid = await mail.approve(paused.task_id, call.call_id, { arguments: { to: "bob", amount: 5 }, ...options });
  assert(paid.status === "completed" && paid.response.includes("paid 5 to bob"), JSON.stringify(paid));
  assert(numbers.at(-1) === (await mail.task(paid.task_id)).seq, "all events");

  const again = await mail.send(message, { key: "once" });
  assert(again === paid.task_id, "a key is accepted once");
  const other = await mail.ask("pay 300");
  const rejected = await mail.reject(other.task_id, other.pending[0].call_id, { reason: "too much" });
  assert(rejected.response.includes("too much"), rejected.response);
  const question = await mail.ask("ask who");
  const told = await mail.reply(question.task_id, "ann");
  assert(told.status === "completed" && told.response.includes("ann"), JSON.stringify(told));

  const open = await mail.send("pay 400");
  await mail.cancel(open);
  const none = await new MAILClient(url, { token: "wrong" }).task("x").catch((error) => error);
  assert(none.status === 401 && none.permanent, String(none));
  const gone = await new MAILClient("http://127.0.0.1:9", { token }).task("x").catch((error) => error);
  assert(gone.isUnreachable && !gone.permanent, String(gone));
  return (await mail.task(open)).status;
}
