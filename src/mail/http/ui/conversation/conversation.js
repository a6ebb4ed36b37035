// The task as a conversation.

import { Loading } from "../components/notice.js";
import { Markdown } from "../components/markdown.js";
import { html, useState } from "../html.js";
import * as api from "../api/api.js";

export function Conversation({ session, navigate }) {
  const [body, setBody] = useState("");
  if (session?.isLoading) return html`<${Loading} />`;
  const onSubmit = async (event) => {
    event.preventDefault();
    if (session) await session.send({ body });
    else navigate({ task: await api.send({ body }) });
    setBody("");
  };
  const answers = (session?.events ?? []).filter(({ event }) => event === "task_complete" || event === "task_error");
  return html`
    <div class="chat">${answers.map(({ seq, data }) => html`<${Markdown} key=${seq} text=${data.response} />`)}</div>
    <form onSubmit=${onSubmit}><textarea aria-label="Message" value=${body} onInput=${(event) => setBody(event.currentTarget.value)}></textarea><button class="button primary">Send</button></form>
  `;
}
