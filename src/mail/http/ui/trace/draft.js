// Trying another prompt: a draft of the swarm, and a fork of the task that runs on it.

import * as api from "../api/api.js";
import { FormDialog } from "../components/dialog.js";
import { Radio, TextField } from "../components/field.js";
import { Notice } from "../components/notice.js";
import { html, useEffect, useState } from "../html.js";
import { indexOf, messageOf, snapshotsOf } from "./snapshots.js";

/** What stands for a secret in a prompt. */
const HIDDEN = "(hidden)";

const asAdmin = () => ({ bearer: api.token.ofAdmin() });

/** Return a name that a draft can have. */
const nameFor = (agent) => `try-${agent.toLowerCase().replaceAll(/[^a-z0-9_-]/g, "-")}`.slice(0, 63);

/** Return what a draft changes of an agent, so that it can be tried on another task; `{}` if there is none. */
async function saved(name, agent) {
  const { drafts } = await api.read("drafts", {}, asAdmin());
  if (!drafts.some((draft) => draft.name === name)) return {};
  return (await api.read(`drafts/${encodeURIComponent(name)}`, {}, asAdmin())).changes[agent] ?? {};
}

/** Return the entries to fork from: before the turn, and after the message of a person that it works on. */
function placesOf(events, first) {
  const snapshots = snapshotsOf(events);
  const asked = events.findLast((event) => event.seq < first && messageOf(event));
  const after = asked ? snapshots[indexOf(snapshots, asked.seq)].last : first - 1;
  return { turn: first - 1, run: Math.min(after, first - 1) };
}

/** Return the options that a text sets. Throws an error for what is no JSON object. */
function parseOptions(text) {
  if (!text.trim()) return undefined;
  try {
    const options = JSON.parse(text);
    if (options && typeof options === "object" && !Array.isArray(options)) return options;
  } catch {
    // the error below says what to write
  }
  throw new Error('Write the options as a JSON object, such as {"verbosity": "low"}.');
}

/** A dialog for an agent, and a turn of it that began at `first`; `onFork(id)` gets the fork that tries the draft. */
export function DraftDialog({ session, caller, agent, first, onFork, onClose }) {
  const places = placesOf(session.events, first);
  const [place, setPlace] = useState("turn");
  const [name, setName] = useState(nameFor(agent));
  const [now, setNow] = useState(null);
  const [isSaved, setSaved] = useState(false);
  const [system, setSystem] = useState("");
  const [llm, setLlm] = useState("");
  const [options, setOptions] = useState("");
  const [actions, setActions] = useState(new Set());
  const [problem, setProblem] = useState(null);
  useEffect(() => {
    api
      .read("swarm", { prompts: true }, asAdmin())
      .then((swarm) => {
        const found = swarm.agents.find((each) => each.name === agent);
        if (!found) throw new Error("The swarm no longer has this agent.");
        return saved(name, agent).then((changes) => {
          setSaved(Object.keys(changes).length > 0);
          setSystem(changes.system ?? found.system_prompt ?? "");
          setLlm(changes.llm ?? found.model);
          setOptions(changes.options ? JSON.stringify(changes.options) : "");
          setActions(new Set(changes.actions ?? found.actions));
          setNow({ ...found, known: swarm.actions.map((action) => action.name) });
        });
      })
      .catch(setProblem);
  }, [agent]);
  const toggle = (action) => () => {
    const chosen = new Set(actions);
    if (!chosen.delete(action)) chosen.add(action);
    setActions(chosen);
  };
  const tryIt = async () => {
    const isOther = system !== now.system_prompt;
    if (isOther && system.includes(HIDDEN)) throw new Error(`Write the text in place of ${HIDDEN} in the prompt.`);
    const changes = {
      system: isOther ? system : undefined,
      llm: llm === now.model ? undefined : llm,
      options: parseOptions(options),
      actions: [...actions],
    };
    const testers = caller.role === "admin" ? [] : [`${caller.role}:${caller.id}`];
    const path = `drafts/${encodeURIComponent(name)}`;
    await api.post(path, { agents: { [agent]: changes }, testers }, asAdmin());
    return api.fork(session.id, places[place], { actions: "ask", run: true, draft: name });
  };
  const choice = (value, label) => html`
    <${Radio}
      name="draft-place"
      id=${`draft-${value}`}
      label=${label}
      isChosen=${place === value}
      onChoose=${() => setPlace(value)} />
  `;
  return html`
    <${FormDialog}
      title=${`Try another prompt for ${agent}`}
      action="Run with this draft"
      submit=${tryIt}
      onDone=${onFork}
      onClose=${onClose}
      isReady=${now !== null}
      isWide>
      <p class="quiet small-text">
        It is saved as a draft of the swarm, which only the fork of this task uses. Actions that are not read-only wait
        for your approval
        there.${isSaved && html`${" "}What ${name} changes is filled in already: run it on this task, too.`}
      </p>
      <${TextField}
        label="System prompt"
        id="draft-system"
        class="mono"
        rows="10"
        required
        disabled=${!now}
        value=${system}
        onType=${setSystem} />
      <${TextField} label="Model" id="draft-llm" required disabled=${!now} value=${llm} onType=${setLlm} />
      <${TextField}
        label="Options to set, as JSON"
        id="draft-options"
        placeholder='{"verbosity": "low"}'
        disabled=${!now}
        value=${options}
        onType=${setOptions} />
      ${
        now?.known.length > 0 &&
        html`
          <fieldset class="choices">
            <legend>Actions</legend>
            ${now.known.map(
              (action) => html`
                <div key=${action} class="choice">
                  <input
                    type="checkbox"
                    id=${`draft-action-${action}`}
                    checked=${actions.has(action)}
                    onChange=${toggle(action)} />
                  <label for=${`draft-action-${action}`}><code>${action}</code></label>
                </div>
              `,
            )}
          </fieldset>
        `
      }
      <fieldset class="choices">
        <legend>Run again</legend>
        ${choice("turn", "This turn, and what comes after it")}
        ${places.run < places.turn && choice("run", "Everything since the message that it works on")}
      </fieldset>
      <${TextField}
        label="Name of the draft"
        id="draft-name"
        required
        pattern="[a-z0-9][a-z0-9_\\-]*"
        maxlength=${63}
        value=${name}
        onType=${setName} />
      ${problem && html`<${Notice} tone="bad">${problem.message}</${Notice}>`}
    </${FormDialog}>
  `;
}
