// An agent: what it is and may do and, in a task, what it has done.

import * as api from "../api/api.js";
import { AgentName } from "../components/agent.js";
import { Chip } from "../components/chip.js";
import { Clock, Elapsed, formatTook } from "../components/duration.js";
import { Facts } from "../components/facts.js";
import { Code } from "../components/json.js";
import { Markdown } from "../components/markdown.js";
import { Notice } from "../components/notice.js";
import { formatUsage } from "../components/usage.js";
import { useData } from "../components/use-data.js";
import { plural } from "../components/words.js";
import { html, useEffect, useRef, useState } from "../html.js";
import { CALLER, edgeKey, graphOf, localName, neighbours } from "./model.js";

/** Entries of a history that are shown at first, and with each press of the button. */
const PAGE = 10;

/** The subject of a message that was given none. */
const DEFAULT_SUBJECT = "New Message";

const words = (kind) => kind.replaceAll("_", " ");

function Links({ links, agent, activity, onAgent }) {
  return html`
    <ul class="agent-links">
      ${links.map(({ id }) => {
        const count = activity?.edges.get(edgeKey(agent, id))?.count;
        return html`
          <li key=${id}>
            <button type="button" class="agent-link" onClick=${() => onAgent(id)}>
              <${AgentName} name=${id} />
              ${
                count
                  ? html`
                      <span class="quiet">
                        ${` ${count}`}
                        <span class="hidden-label"> messages in this task</span>
                      </span>
                    `
                  : null
              }
            </button>
          </li>
        `;
      })}
    </ul>
  `;
}

function Roles({ agent, swarm }) {
  const roles = [
    agent.name === swarm.entrypoint
      ? ["accent", "entrypoint"]
      : agent.enable_entrypoint && ["accent", "takes messages from people"],
    agent.can_complete_tasks && ["good", "completes tasks"],
    agent.enable_interswarm && ["plain", "writes to other swarms"],
    agent.copies > 0 && ["plain", plural(agent.copies, "copy", "copies")],
  ].filter(Boolean);
  return (
    roles.length > 0 &&
    html`
      <p class="row">
        ${roles.map(([tone, role]) => html`<${Chip} key=${role} tone=${tone}>${role}</${Chip}>`)}
      </p>
    `
  );
}

function Tools({ agent, swarm }) {
  const actions = new Map(swarm.actions.map((action) => [action.name, action]));
  const own = agent.actions.map((name) => actions.get(name)).filter(Boolean);
  const hasOwn = own.length > 0 || agent.mcp_servers?.length > 0;
  return html`
    <section class="agent-section">
      <h3>Tools</h3>
      ${
        own.length > 0 &&
        html`
          <ul class="tools">
            ${own.map(
              (action) => html`
                <li key=${action.name}>
                  <p class="row">
                    <code>${action.name}</code>
                    ${action.breakpoint && html`<${Chip} tone="warn">pauses the task</${Chip}>`}
                    ${action.needs_approval && html`<${Chip} tone="warn">needs approval</${Chip}>`}
                  </p>
                  ${action.description && html`<p class="tool-description">${action.description}</p>`}
                </li>
              `,
            )}
          </ul>
        `
      }
      ${
        agent.mcp_servers?.length > 0 &&
        html`<${ServerTools} servers=${agent.mcp_servers} tools=${agent.mcp_tools ?? []} />`
      }
      <p class="quiet small-text">
        ${hasOwn ? "As well as" : "Only"} the MAIL tools, such as${" "}
        <code>send_request</code>
        ${" "}and${" "}
        <code>send_response</code>
        ${agent.exclude_tools?.length ? html`, but not ${agent.exclude_tools.join(", ")}` : ""}.
      </p>
    </section>
  `;
}

/** The tools of MCP servers; the server lists those that it has looked up for a turn, or when it started. */
function ServerTools({ servers, tools }) {
  const where = `the MCP server${servers.length > 1 ? "s" : ""} ${servers.join(", ")}`;
  if (!tools.length) return html`<p>All tools of ${where}. They are listed here once the agent has worked.</p>`;
  return html`
    <p>From ${where}:</p>
    <ul class="tools server-tools">
      ${tools.map((tool) => html`<li key=${tool}><code>${tool}</code></li>`)}
    </ul>
  `;
}

/**
 * What the server says of an agent now, `{agent, problem}`: tools of MCP servers may have been looked up since the
 * page was opened, and admins get its system prompt.
 */
export function useAgent(known, isAdmin) {
  const read = async () => {
    if (!known || !(isAdmin || known.mcp_servers?.length)) return null;
    const options = isAdmin ? { bearer: api.token.ofAdmin() } : {};
    const { agents } = await api.read("swarm", isAdmin ? { prompts: true } : {}, options);
    return agents.find(({ name }) => name === known.name);
  };
  const { data, problem } = useData(read, { about: [known?.name, isAdmin] });
  return { agent: data?.name === known?.name ? data : known, problem };
}

/** The first sentence of a prompt, for an agent without a description. */
export function firstSentence(prompt) {
  const [line = ""] = (prompt ?? "").trim().split("\n");
  const [sentence] = /^.*?[.!?](?=\s|$)/.exec(line) ?? [line];
  return sentence.length > 200 ? `${sentence.slice(0, 199)}…` : sentence;
}

/** The system prompt, which the server shows to admins only. */
function Prompt({ prompt, problem }) {
  const [isShown, setShown] = useState(false);
  return html`
    <section class="agent-section">
      <h3>System prompt</h3>
      ${problem && html`<${Notice} tone="bad">${problem.message}</${Notice}>`}
      ${
        !isShown &&
        html`<p><button type="button" class="button small" onClick=${() => setShown(true)}>Show the prompt</button></p>`
      }
      ${isShown && !prompt && html`<p class="quiet">None, or its function doesn't show it.</p>`}
      ${isShown && prompt && html`<${Code} text=${prompt} label="Copy the prompt" />`}
    </section>
  `;
}

const mailTitle = (way) => (entry) => html`
  ${way}${" "}
  <strong>${entry.other}</strong>
  ${" "}· ${words(entry.type)}
`;

const TITLES = {
  sent: mailTitle("To"),
  received: mailTitle("From"),
  call: (entry) => html`
    Called${" "}
    <code>${entry.name}</code>
  `,
  note: (entry) => words(entry.event),
};

const isLong = (text) => text.length > 160 || text.includes("\n");
const asText = (value) => (typeof value === "string" ? value : JSON.stringify(value, null, 2));

function Part({ title, text }) {
  return (
    text &&
    html`
      <details>
        <summary>${title}</summary>
        <p class="entry-text">${text}</p>
      </details>
    `
  );
}

function Text({ text, children }) {
  if (!isLong(text)) return text && html`<p class="entry-text">${text}</p>`;
  return html`
    <details>
      <summary>${text.trim().slice(0, 120)}…</summary>
      ${children || html`<p class="entry-text">${text}</p>`}
    </details>
  `;
}

function Body({ entry }) {
  const text = entry.body ?? entry.text ?? entry.result;
  const isMail = entry.kind === "sent" || entry.kind === "received";
  const hasSubject = entry.subject && entry.subject !== DEFAULT_SUBJECT && !text.startsWith(entry.subject);
  return html`
    <${Part} title="Text before the call" text=${entry.said} />
    <${Part} title="Reasoning" text=${entry.reasoning} />
    ${
      Object.keys(entry.arguments ?? {}).length > 0 &&
      html`
        <details>
          <summary>Arguments</summary>
          <${Code} text=${asText(entry.arguments)} label="Copy the arguments" />
        </details>
      `
    }
    ${hasSubject && html`<p class="entry-subject">${entry.subject}</p>`}
    <${Text} text=${text}>
      ${isMail && html`<${Markdown} text=${text} />`}
    </${Text}>
  `;
}

function History({ entries, onEntry }) {
  const [shown, setShown] = useState(PAGE);
  if (!entries.length) return html`<p class="quiet">Nothing yet.</p>`;
  const some = entries.slice(-shown);
  return html`
    ${
      some.length < entries.length &&
      html`
        <p>
          <button type="button" class="button small" onClick=${() => setShown(shown + PAGE)}>
            Show earlier entries
          </button>
          ${" "}
          <span class="quiet small-text">${entries.length - some.length} more</span>
        </p>
      `
    }
    <ol class="history">
      ${some.map(
        (entry) => html`
          <li key=${`${entry.seq} ${entry.kind}`} class=${`entry-${entry.kind} ${entry.isError ? "is-error" : ""}`}>
            <p class="entry-head">
              <span>${TITLES[entry.kind](entry)}</span>
              ${entry.seconds != null && html`<span class="quiet">${formatTook(entry.seconds)}</span>`}
              <span class="space"></span>
              <span class="quiet"><${Clock} time=${entry.time} /></span>
              ${
                onEntry &&
                html`
                  <button
                    type="button"
                    class="link-button entry-number"
                    aria-label=${`Entry ${entry.seq} in the trace`}
                    onClick=${() => onEntry(entry.seq)}>
                    ${entry.seq}
                  </button>
                `
              }
            </p>
            <${Body} entry=${entry} />
          </li>
        `,
      )}
    </ol>
  `;
}

function InTask({ id, session, activity, onEntry }) {
  const { entries, sent, received, actions } = activity.of(id);
  const live = session.at === null ? session.live.of(id) : null;
  const usage = (session.past ?? session.record)?.usage?.agents?.[id];
  const counts = [
    [received, "received"],
    [sent, "sent"],
    [actions, "actions"],
  ].map(([count, name]) => `${count} ${name}`);
  return html`
    <section class="agent-section">
      <h3>In this task</h3>
      ${
        live &&
        html`
          <p class="agent-works">
            <${Chip} tone="busy" dot>working</${Chip}>
            ${" "}${[...live.work.values()].map(
              ({ name, since }) => html`
                <span>
                  ${name} ·${" "}
                  <${Elapsed} since=${since} />
                </span>
              `,
            )}${!live.work.size && html`<${Elapsed} since=${live.since} />`}
          </p>
        `
      }
      <p class="quiet">${counts.join(" · ")}</p>
      ${usage?.calls > 0 && html`<p>${plural(usage.calls, "model call")} · ${formatUsage(usage)}</p>`}
      <${History} entries=${entries} onEntry=${onEntry} />
    </section>
  `;
}

/** With whom an agent exchanges mail, as `Facts`. */
function relationsOf({ id, swarm, activity, onAgent }) {
  const links = neighbours(graphOf(swarm), id);
  const parts = [
    ["Exchanges mail with", links.filter((link) => link.writes && link.reads)],
    ["Writes to", links.filter((link) => link.writes && !link.reads)],
    ["Only answers", links.filter((link) => link.reads && !link.writes)],
  ].filter(([, some]) => some.length);
  if (!parts.length) return [["Writes to", html`<span class="quiet">No other agent</span>`]];
  return parts.map(([name, some]) => [
    name,
    html`<${Links} links=${some} agent=${id} activity=${activity} onAgent=${onAgent} />`,
  ]);
}

/**
 * The panel of an agent; `agent` is its name, or `name@swarm`.
 *
 * In a task, `activity` is what its agents have done. `onAgent` opens another agent, `onEntry` an entry of the trace.
 */
export function AgentPanel({ agent: id, swarm, session, activity, caller, onAgent = () => {}, onEntry }) {
  const panel = useRef();
  // The button that has opened this panel may have been part of another agent's.
  useEffect(() => {
    if (document.activeElement === document.body) panel.current.closest("aside")?.focus();
  }, []);
  const name = localName(id, swarm.name);
  const isAdmin = Boolean(caller?.isAdmin);
  const { agent, problem } = useAgent(
    swarm.agents.find((one) => one.name === name),
    isAdmin,
  );
  const task =
    session && activity && html`<${InTask} id=${name} session=${session} activity=${activity} onEntry=${onEntry} />`;
  const relations = relationsOf({ id: name, swarm, activity, onAgent });
  if (name === CALLER)
    return html`
      <div class="agent-panel" ref=${panel}>
        <p>The person or program that began this task and gets its answers.</p>
      </div>
    `;
  return html`
    <div class="agent-panel" ref=${panel}>
      ${
        agent
          ? html`<${Roles} agent=${agent} swarm=${swarm} />`
          : html`
              <p class="row">
                <${Chip}>${name.includes("@") ? "another swarm" : "not in this version of the swarm"}</${Chip}>
              </p>
            `
      }
      ${
        (agent?.description || agent?.system_prompt) &&
        html`<p class="agent-about">${agent.description || firstSentence(agent.system_prompt)}</p>`
      }
      <${Facts}
        rows=${[
          ["Swarm", name.includes("@") && name.slice(name.indexOf("@") + 1)],
          [
            "Model",
            agent &&
              (agent.model
                ? html`<code>${agent.model}</code>`
                : html`<span class="quiet">None, or a function of its own</span>`),
          ],
          ...(task ? [] : relations),
        ]} />
      ${task}
      ${
        task &&
        html`
          <section class="agent-section">
            <h3>Mail</h3>
            <${Facts} rows=${relations} />
          </section>
        `
      }
      ${agent && html`<${Tools} agent=${agent} swarm=${swarm} />`}
      ${agent && isAdmin && html`<${Prompt} key=${name} prompt=${agent.system_prompt} problem=${problem} />`}
    </div>
  `;
}
