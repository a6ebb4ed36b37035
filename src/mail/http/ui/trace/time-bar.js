// The time-travel bar: a slider over the task's snapshots, and what can be done at one of them.

import * as api from "../api/api.js";
import { IconButton, WorkButton } from "../components/button.js";
import { StatusChip } from "../components/chip.js";
import { formatSeconds } from "../components/duration.js";
import { Icon } from "../components/icons.js";
import { Notice } from "../components/notice.js";
import { plural } from "../components/words.js";
import { html, useEffect, useMemo, useRef, useState } from "../html.js";
import { rerun } from "./fork.js";
import { indexOf, lastGood, snapshotsOf } from "./snapshots.js";

/** What the task was at the chosen moment, in words. */
function stateOf(past) {
  const waiting = Object.values(past.queued).reduce((sum, n) => sum + n, 0);
  return [
    waiting ? `${plural(waiting, "message waits", "messages wait")}` : "no mail waits",
    `step ${past.steps} of ${past.max_steps}`,
    past.pending_tool_calls.length
      ? `${plural(past.pending_tool_calls.length, "call waits", "calls wait")} for you`
      : "",
  ]
    .filter(Boolean)
    .join(" · ");
}

/** For a failed task: run it again from where it was last in order, or process its dead letters again. */
function Repair({ session, snapshots, onFork, onProblem }) {
  const { record } = session;
  const letters = record.dead_letters;
  const good = record.status === "failed" ? lastGood(snapshots) : null;
  const attempt = (work) => async () => {
    try {
      await work();
    } catch (problem) {
      onProblem(problem);
    }
  };
  return html`
    ${
      good !== null &&
      html`
        <${WorkButton} class="button small" onClick=${attempt(async () => onFork(await rerun(session, good)))}>
          <${Icon} name="retry" />
          Run again from entry ${good}
        </${WorkButton}>
      `
    }
    ${
      letters.length > 0 &&
      html`
        <${WorkButton}
          class="button small"
          onClick=${attempt(async () => {
            await api.redrive(session.id);
            session.look();
          })}>
          <${Icon} name="mail" />
          Redrive ${letters.length === 1 ? `dead letter ${letters[0]}` : `${letters.length} dead letters`}
        </${WorkButton}>
      `
    }
  `;
}

/**
 * `onFork(task_id)` is called with a fork that was made here, `onForkFrom(seq)` asks how to fork. `origin` is the
 * task that this one is a fork of (or null); `onCompare` compares both.
 */
export function TimeBar({ session, navigate, origin, isComparing, onCompare, onFork, onForkFrom }) {
  const { events, at, past } = session;
  const snapshots = useMemo(() => snapshotsOf(events), [session.id, events.length]);
  const now = indexOf(snapshots, at);
  const [index, setIndex] = useState(now);
  const [problem, setProblem] = useState(null);
  const slider = useRef();
  useEffect(() => setIndex(now), [at, snapshots.length]);
  if (!snapshots.length) return null;
  const chosen = snapshots[Math.min(index, snapshots.length - 1)];
  const last = snapshots.length - 1;
  /** Show a moment; the button that was pressed disappears, so the slider gets the focus. */
  const go = (at) => {
    slider.current.focus();
    navigate({ at });
  };
  const show = (n) => go(n === last ? null : snapshots[n].last);
  // At the ends, the button is disabled.
  const step = (n) => (n === 0 || n === last ? show(n) : navigate({ at: snapshots[n].last }));
  const onKeyDown = (event) => {
    if (event.key !== "Enter" || isShown) return;
    event.preventDefault();
    show(index);
  };
  const since = (chosen.at - snapshots[0].at) / 1000;
  const when = since ? `${formatSeconds(since)} after the beginning` : "the beginning";
  const what = `${chosen.who}: ${chosen.text.slice(0, 80)}`;
  const words = `Entry ${chosen.last} of ${snapshots[last].last}, ${when}: ${what}`;
  const isShown = index === now;
  return html`
    <section class="time-bar" aria-label="Time travel">
      ${
        problem &&
        html`
          <${Notice} tone="bad" action=${{ name: "Dismiss", onClick: () => setProblem(null) }}>
            ${problem.message}
          </${Notice}>
        `
      }
      <div class="time-slider">
        <${IconButton} icon="back" label="The moment before" disabled=${index === 0} onClick=${() => step(index - 1)} />
        <input
          ref=${slider}
          type="range"
          aria-label="Moment"
          onKeyDown=${onKeyDown}
          aria-valuetext=${words}
          min="0"
          max=${last}
          step="1"
          value=${index}
          onInput=${(event) => setIndex(Number(event.currentTarget.value))} />
        <${IconButton}
          icon="right"
          label="The next moment"
          disabled=${index === last}
          onClick=${() => step(index + 1)} />
        <span class="time-entry">
          Entry${" "}
          <strong>${chosen.last}</strong>
          ${" "}of ${snapshots[last].last}
        </span>
      </div>
      <div class="time-line">
        <p class="time-words">
          <span class="quiet">${since ? `+${formatSeconds(since)}` : "Start"}</span>
          ${" "}
          <strong>${chosen.who}</strong>
          ${" "}${chosen.text}
        </p>
        <div class="row time-actions">
          ${
            !isShown &&
            html`
              <button type="button" class="button small primary" onClick=${() => show(index)}>Show this moment</button>
            `
          }
          ${
            at !== null &&
            html`<button type="button" class="button small" onClick=${() => go(null)}>Back to now</button>`
          }
          <button type="button" class="button small" onClick=${() => onForkFrom(chosen.last)}>
            <${Icon} name="fork" />
            Fork from here…
          </button>
          ${
            origin &&
            html`
              <button type="button" class="button small" aria-pressed=${String(isComparing)} onClick=${onCompare}>
                Compare with the original
              </button>
            `
          }
          <${Repair} session=${session} snapshots=${snapshots} onFork=${onFork} onProblem=${setProblem} />
        </div>
      </div>
      ${
        at !== null &&
        past &&
        html`
          <p class="row time-state">
            <strong>As of entry ${past.seq}</strong>
            <${StatusChip} status=${past.status} isPast />
            <span class="quiet">${stateOf(past)}</span>
          </p>
        `
      }
    </section>
  `;
}
