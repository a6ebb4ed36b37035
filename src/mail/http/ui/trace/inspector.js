// The details of a span or an entry: what an agent read, which tools it had, what its model replied, and what it cost.

import * as api from "../api/api.js";
import { writtenText } from "../api/messages.js";
import { formatRoute } from "../app/router.js";
import { AgentName, Way } from "../components/agent.js";
import { Chip } from "../components/chip.js";
import { Clock, Elapsed, formatSeconds, formatTook } from "../components/duration.js";
import { Facts } from "../components/facts.js";
import { Icon } from "../components/icons.js";
import { Inspector } from "../components/inspector.js";
import { Code, Json } from "../components/json.js";
import { Markdown } from "../components/markdown.js";
import { Loading, Notice } from "../components/notice.js";
import { pretty } from "../components/pretty.js";
import { TabPanel, Tabs } from "../components/tabs.js";
import { formatCost } from "../components/usage.js";
import { useData } from "../components/use-data.js";
import { count } from "../components/words.js";
import { html, useEffect, useMemo, useState } from "../html.js";
import { DraftDialog } from "./draft.js";
import { readHistory, readTool } from "./history.js";
import { durationOf } from "./waterfall.js";

const TABS = [
  { id: "reply", name: "Reply" },
  { id: "read", name: "Read" },
  { id: "setup", name: "Setup" },
  { id: "record", name: "Record" },
];

const TONES = { ok: "good", failed: "bad", running: "busy", waiting: "warn", discarded: "plain" };
const ROLES = { user: "Message", assistant: "Reply", system: "System", developer: "System" };
const PARTS = { reasoning: "Reasoning", call: "Calls", result: "Result of" };

/** Entries of the history that are read at first, and then each time. */
const ENTRIES = 30;

/** Entries that the server returns at most. */
const MAX_ENTRIES = 1_000;

/** A message as an agent has read it; its XML is behind a button. */
function Letter({ part: { from, isByAgent, to, subject, text, time, xml } }) {
  return html`
    <div class="part letter">
      <p class="step-head">
        <${Way} from=${from} isByAgent=${isByAgent} to=${to} />
        <${Clock} time=${time} />
      </p>
      ${subject && html`<p class="step-subject">${subject}</p>`}
      <${Markdown} text=${text} />
      <details>
        <summary class="quiet small-text">XML</summary>
        <${Code} text=${xml} colours="xml" label="Copy the XML" />
      </details>
    </div>
  `;
}

function Part({ part }) {
  if (part.kind === "mail") return html`<${Letter} part=${part} />`;
  if (part.kind === "text") return html`<${Code} text=${part.text} colours=${/^<\w/.test(part.text) ? "xml" : ""} />`;
  const name = part.name
    ? html`
        ${" "}
        <code>${part.name}</code>
      `
    : null;
  if (part.kind === "reasoning")
    return html`
      <details class="reasoning" open>
        <summary>Reasoning</summary>
        <p class="preserved">${part.text}</p>
      </details>
    `;
  return html`
    <div class="part">
      ${PARTS[part.kind] && html`<p class="part-name">${PARTS[part.kind]}${name}</p>`}
      <${Code} text=${part.text} colours=${/^[[{]/.test(part.text) ? "json" : ""} />
    </div>
  `;
}

/** `isOfModel` tells whether a model has written the replies; agents without one have functions that do. */
function Messages({ entries, isOfModel }) {
  const messages = useMemo(() => readHistory(entries), [entries]);
  return html`
    <ol class="messages">
      ${messages.map(
        ({ role, parts }, n) => html`
          <li key=${n} class=${`message ${role}`}>
            ${
              role !== "tool" &&
              html`<p class="message-role">${role === "assistant" && isOfModel ? "Model" : (ROLES[role] ?? role)}</p>`
            }${parts.map((part, at) => html`<${Part} key=${at} part=${part} />`)}
          </li>
        `,
      )}
    </ol>
  `;
}

/** The calls of a turn that left nothing in the agent's history, from its events. */
function CallsOf({ events }) {
  return events
    .filter(({ event }) => event === "tool_call" || event === "text_answer" || event === "agent_error")
    .map(({ seq, event, data }) => {
      const { tool_name, tool_args, reasoning, content } = data.extra_data;
      const text = writtenText({ data });
      return html`
        <div key=${seq} class="stack">
          ${reasoning && html`<${Part} part=${{ kind: "reasoning", text: reasoning }} />`}
          ${
            text !== null
              ? html`<${Markdown} text=${text} />`
              : event === "tool_call"
                ? html`<${Part} part=${{ kind: "call", name: tool_name, text: pretty(tool_args) }} />`
                : html`<p class="preserved">${content ?? data.description}</p>`
          }
        </div>
      `;
    });
}

/** The reasoning that the record has, unless the model's reply shows it. */
function thoughtsOf(events, output) {
  const isThere = readHistory(output).some(({ parts }) => parts.some(({ kind }) => kind === "reasoning"));
  const text = events
    .map(({ data }) => data.extra_data?.reasoning)
    .filter(Boolean)
    .join("\n\n");
  return text && !isThere ? { kind: "reasoning", text } : null;
}

function Tools({ setup }) {
  if (!setup.tools.length && !setup.has_more_tools) return html`<p class="quiet">It has no actions.</p>`;
  return html`
    <ul class="tools">
      ${setup.tools.map(readTool).map(
        ({ name, description, parameters }) => html`
          <li key=${name}>
            <details>
              <summary><code>${name}</code></summary>
              <p class="preserved small-text">${description}</p>
              ${parameters && html`<${Json} value=${parameters} />`}
            </details>
          </li>
        `,
      )}
    </ul>
    ${
      setup.has_more_tools &&
      html`<p class="quiet small-text">It also gets tools of MCP servers, which are looked up in its turns.</p>`
    }
  `;
}

/**
 * The system prompt of a turn. The turn is read as the task's owner, who gets none; but the swarm that runs now shows
 * its prompts to an admin's session.
 */
function Prompt({ setup, agent, caller }) {
  const isHidden = setup.model && setup.system === null && caller.role !== "admin";
  const isShown = isHidden && caller.isAdmin && setup.is_present;
  const read = async () => {
    if (!isShown) return null;
    const { agents } = await api.read("swarm", { prompts: true }, { bearer: api.token.ofAdmin() });
    return { system: agents.find(({ name }) => name === agent)?.system_prompt };
  };
  const { data, problem } = useData(read, { about: [agent, isShown] });
  const system = setup.system ?? data?.system;
  if (system) return html`<${Code} text=${system} />`;
  if (problem) return html`<${Notice} tone="bad">${problem.message}</${Notice}>`;
  if (isShown && !data) return html`<${Loading} />`;
  if (!isHidden || isShown) return html`<p class="quiet">It has none.</p>`;
  if (!caller.isAdmin) return html`<p class="quiet">Only admins may see the prompts of agents.</p>`;
  return html`
    <p class="quiet">
      The turn ran on another version of the swarm than runs now. An admin gets its prompt with
      ${" "}
      <code>mail task turn</code>
      ,${" "}
      <code>--caller</code>
      ${" "}and${" "}
      <code>--reason</code>
      ; you see${" "}
      <a href=${`#${formatRoute({ view: "swarm", agent })}`}>the one that ${agent} has now</a>
      .
    </p>
  `;
}

/** Only admins get the prompt and the options; `onTry` opens the dialog that changes them. */
function Setup({ setup, agent, caller, onTry }) {
  if (!setup) return html`<p class="quiet">The swarm no longer has this agent.</p>`;
  const { version, name, code, options } = setup;
  return html`
    <p class="quiet small-text">
      ${
        version
          ? html`
              Version ${name} (
              <code>${version}</code>
              ) of the
              swarm${
                code &&
                html`
                  , code${" "}
                  <code>${code}</code>
                `
              },
              which
              ${" "}${setup.is_present ? "still runs" : "has been replaced since"}.
            `
          : "As the swarm is set up now, which may be different from then."
      }
    </p>
    ${
      caller.isAdmin &&
      setup.model &&
      html`<p><button type="button" class="button small" onClick=${onTry}>Try another prompt…</button></p>`
    }
    <h3>System prompt</h3>
    <${Prompt} setup=${setup} agent=${agent} caller=${caller} />
    <h3>Tools</h3>
    <${Tools} setup=${setup} />
    ${
      options &&
      Object.keys(options).length > 0 &&
      html`
        <h3>Options</h3>
        <${Json} value=${options} />
      `
    }
  `;
}

function useTurn(session, span) {
  const [limit, setLimit] = useState(ENTRIES);
  useEffect(() => setLimit(ENTRIES), [session.id, span.first]);
  const about = [session.id, span.first, limit];
  const read = () => api.read("task/turn", { task_id: session.id, seq: span.first, limit });
  const { data: turn, problem } = useData(read, { about });
  return {
    turn: turn?.first === span.first ? turn : null,
    problem,
    more: limit < MAX_ENTRIES ? () => setLimit(Math.min(MAX_ENTRIES, limit + 10 * ENTRIES)) : null,
  };
}

const ofSpan = (session, { first, last }) => session.events.filter(({ seq }) => seq >= first && seq <= last);

function TurnDetails({ session, span, caller, tab, onTab, onTried }) {
  const [isTrying, setTrying] = useState(false);
  const { turn, problem, more } = useTurn(session, span);
  const events = useMemo(() => ofSpan(session, span), [session.events.length, span.first, span.last]);
  const calls = turn?.timing?.model_calls ?? [];
  const models = [...new Set(calls.map(({ model }) => model))].join(", ") || turn?.setup?.model;
  const usage = span.usage;
  const thoughts = useMemo(() => thoughtsOf(events, turn?.output ?? []), [events, turn]);
  const content = {
    reply: () =>
      turn.output?.length
        ? html`
            ${thoughts && html`<${Part} part=${thoughts} />`}
            <${Messages} entries=${turn.output} isOfModel=${Boolean(models)} />
          `
        : html`<${CallsOf} events=${events} />`,
    read: () => html`
      ${
        turn.omitted > 0 &&
        html`
          <p class="row quiet small-text">
            at least ${count(turn.omitted)} older
            entries ${more && html`<button type="button" class="link-button" onClick=${more}>Show more</button>`}
          </p>
        `
      }
      <${Messages} entries=${turn.history} isOfModel=${Boolean(models)} />
    `,
    setup: () => html`
      <${Setup} setup=${turn.setup} agent=${span.agent} caller=${caller} onTry=${() => setTrying(true)} />
    `,
    record: () => html`
      <${Json} value=${{ output: turn.output, events: events.map(({ seq, event, data }) => ({ seq, event, data })) }} />
    `,
  };
  return html`
    <${Facts}
      rows=${[
        ["Agent", html`<${AgentName} name=${span.agent} />`],
        ["Entries", span.first === span.last ? span.first : `${span.first} to ${span.last}`],
        ["Began", clock(span.begin)],
        ["Duration", span.isTimed ? durationOf(span) : `${durationOf(span)} (not recorded: it was quick)`],
        [
          "Waited",
          span.queued && span.begin - span.queued >= 1
            ? `${formatSeconds((span.begin - span.queued) / 1000)} for its turn`
            : "",
        ],
        ["Model", models],
        ["Tokens", usage?.calls ? tokens(usage) : ""],
        ["Cost", usage?.calls ? formatCost(usage) : ""],
      ]} />
    ${
      calls.length > 0 &&
      html`
        <ul class="calls">
          ${calls.map(
            (call, n) => html`
              <li key=${n}>
                ${call.model}: ${formatTook(call.seconds)},
                after ${formatSeconds(call.after)}${call.attempts > 1 ? `, ${call.attempts} attempts` : ""}
              </li>
            `,
          )}
        </ul>
      `
    }
    <${Tabs} label="Details of the turn" panel="turn-panel" tabs=${TABS} selected=${tab} onSelect=${onTab} />
    <${TabPanel} id="turn-panel" selected=${tab} class="turn-panel">
      ${
        problem
          ? html`<${Notice} tone="bad">${problem.message}</${Notice}>`
          : turn
            ? content[tab]()
            : html`<${Loading} />`
      }
    </${TabPanel}>
    ${
      isTrying &&
      html`
        <${DraftDialog}
          session=${session}
          caller=${caller}
          agent=${span.agent}
          first=${span.first}
          onFork=${onTried}
          onClose=${() => setTrying(false)} />
      `
    }
  `;
}

const tokens = (usage) =>
  [
    `${count(usage.input_tokens)} in${usage.cached_tokens ? ` (${count(usage.cached_tokens)} cached)` : ""}`,
    `${count(usage.output_tokens)} out${usage.reasoning_tokens ? ` (${count(usage.reasoning_tokens)} reasoning)` : ""}`,
  ].join(", ");

const clock = (time) =>
  new Date(time).toLocaleTimeString([], {
    hour: "2-digit",
    minute: "2-digit",
    second: "2-digit",
    fractionalSecondDigits: 3,
  });

/** A turn that has not ended: what it does, and what its model has written so far. */
function LiveDetails({ session, span }) {
  const one = session.live.agents.get(span.agent);
  if (!one) return html`<p class="quiet">The turn has ended; its entries are in the trace.</p>`;
  const { reasoning, text, answer } = one.text;
  return html`
    <${Facts}
      rows=${[
        ["Agent", html`<${AgentName} name=${span.agent} />`],
        ["Since", html`<${Elapsed} since=${one.since} />`],
      ]} />
    ${[...one.work].map(
      ([key, work]) => html`
        <p key=${key} class="row">
          <${Chip} tone="busy" dot>${{ model: "model call", wait: "waits for" }[work.kind] ?? "action"}</${Chip}>
          ${work.name}
          <${Elapsed} since=${work.since} />
        </p>
        ${
          work.retry &&
          html`
            <${Notice} tone="warn">
              ${work.retry.reason}; attempt ${work.retry.attempt} in ${formatSeconds(work.retry.retry_in)}
            </${Notice}>
          `
        }
      `,
    )}
    ${reasoning && html`<${Part} part=${{ kind: "reasoning", text: reasoning }} />`}
    ${(text || answer) && html`<${Markdown} text=${text || answer} />`}
  `;
}

function EntryDetails({ entry }) {
  const { message, event } = entry;
  const { reasoning, tool_name, tool_args } = event.data.extra_data ?? {};
  const text = writtenText(event) ?? event.data.response;
  return html`
    <${Facts}
      rows=${[
        ["Entry", entry.seq],
        ["Time", clock(entry.at)],
        ["From", message ? entry.who : ""],
        ["To", entry.whom],
        ["Agent", !message && entry.who ? html`<${AgentName} name=${entry.who} />` : ""],
        ["Tool", text === undefined && tool_name],
        ["Subject", message?.message.subject],
      ]} />
    ${reasoning && html`<${Part} part=${{ kind: "reasoning", text: reasoning }} />`}
    ${
      text
        ? html`<${Markdown} text=${text} />`
        : tool_args
          ? html`<${Part} part=${{ kind: "call", name: tool_name, text: pretty(tool_args) }} />`
          : message
            ? html`<${Markdown} text=${message.message.body} />`
            : html`<p class="preserved">${event.data.description}</p>`
    }
    <details>
      <summary>Record</summary>
      <${Json} value=${{ seq: event.seq, event: event.event, data: event.data }} />
    </details>
  `;
}

/**
 * `selected` is `{span}` or `{entry}` (with the `turn` that it belongs to, if any). `onMoment(seq)` shows the task as
 * of an entry, `onFork(seq)` asks how to fork it there, `onTried(id)` shows a fork that tries a draft.
 */
export function TraceInspector({ session, selected, caller, onClose, onMoment, onFork, onTried, onTurn }) {
  const [tab, setTab] = useState("reply");
  const { span, entry, turn } = selected;
  const seq = span ? span.last : entry.seq;
  const title = span
    ? span.agent
      ? `${span.agent} ${span.name}`
      : span.name
    : entry.name[0].toUpperCase() + entry.name.slice(1);
  const isLive = span && span.first === null;
  return html`
    <${Inspector} title=${title} onClose=${onClose}>
      <div class="stack details">
        ${span && span.status !== "ok" && html`<p><${Chip} tone=${TONES[span.status]} dot>${span.status}</${Chip}></p>`}
        ${
          isLive
            ? html`<${LiveDetails} session=${session} span=${span} />`
            : span
              ? html`
                  <${TurnDetails}
                    session=${session}
                    span=${span}
                    caller=${caller}
                    tab=${tab}
                    onTab=${setTab}
                    onTried=${onTried} />
                `
              : html`<${EntryDetails} entry=${entry} />`
        }
        ${
          !isLive &&
          html`
            <div class="row details-actions">
              ${
                turn &&
                html`
                  <button type="button" class="button small" onClick=${() => onTurn(turn)}>
                    Show the turn of ${turn.agent}
                  </button>
                `
              }
              <button type="button" class="button small" onClick=${() => onMoment(seq)}>Show this moment</button>
              <button type="button" class="button small" onClick=${() => onFork(seq)}>
                <${Icon} name="fork" />
                Fork from here…
              </button>
            </div>
          `
        }
      </div>
    </${Inspector}>
  `;
}
