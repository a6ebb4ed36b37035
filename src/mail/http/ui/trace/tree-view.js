// Who asked whom, as a tree.

import { hueOf } from "../components/agent.js";
import { Icon } from "../components/icons.js";
import { formatUsage, sumOf } from "../components/usage.js";
import { html, useMemo, useState } from "../html.js";
import { Cell, Said, Seq, VirtualList } from "./list.js";
import { flatten, readTree } from "./tree.js";
import { durationOf } from "./waterfall.js";

const ROW = 34;
const VERBS = { request: "asks", response: "answers", interrupt: "interrupts", broadcast: "writes to" };

function durations(turns, now) {
  const timed = turns.filter(({ isTimed }) => isTimed);
  if (!timed.length) return "";
  return durationOf(
    {
      kind: "turn",
      isTimed: true,
      begin: 0,
      end: timed.reduce((sum, turn) => sum + (turn.end ?? now) - turn.begin, 0),
    },
    now,
  );
}

/** `matches(node)` tells which nodes the filter shows; the ones above them stay. */
export function TreeView({ items, spans, matches, now, current, onMove, onOpen }) {
  const roots = useMemo(() => readTree(items, spans), [items.length, spans]);
  const [closed, setClosed] = useState(() => new Set());
  const nodes = useMemo(
    () => flatten(matches ? roots.map((root) => pruned(root, matches)).filter(Boolean) : roots, closed),
    [roots, closed, matches],
  );
  const index = nodes.findIndex(({ id }) => id === current);
  const toggle = (node, isOpen) => {
    const next = new Set(closed);
    if (isOpen) next.delete(node.id);
    else next.add(node.id);
    setClosed(next);
  };
  const onKey = (event, at) => {
    const node = nodes[at];
    if (!node || (event.key !== "ArrowRight" && event.key !== "ArrowLeft")) return false;
    const isOpen = !closed.has(node.id);
    if (event.key === "ArrowRight") {
      if (node.children.length && !isOpen) toggle(node, true);
      else if (node.children.length) onMove(nodes[at + 1]);
    } else if (node.children.length && isOpen) toggle(node, false);
    else {
      const parent = nodes.slice(0, at).findLast(({ level }) => level < node.level);
      if (parent) onMove(parent);
    }
    return true;
  };
  const row = (n) => {
    const node = nodes[n];
    const isOpen = !closed.has(node.id);
    const usage = formatUsage(sumOf(node.turns.map((turn) => turn.usage)));
    const took = durations(node.turns, now);
    const verb = VERBS[node.kind] ?? "writes to";
    return {
      id: `node-${n}`,
      key: node.id,
      class: `node ${node.status}`,
      attributes: {
        "aria-level": node.level + 1,
        ...(node.children.length ? { "aria-expanded": String(isOpen) } : {}),
      },
      content: html`
        <${Seq} seq=${node.seq} then=": " />
        <span class="node-what" style=${{ paddingLeft: `${Math.min(node.level, 12) * 18}px` }}>
          <button
            type="button"
            class="twist"
            tabindex="-1"
            aria-hidden="true"
            hidden=${!node.children.length}
            onClick=${(event) => (event.stopPropagation(), toggle(node, !isOpen))}>
            <${Icon} name=${isOpen ? "down" : "right"} size=${12} />
          </button>
          <span class=${`agent-name ${node.isFromOutside ? "" : `hue-${hueOf(node.who)}`}`}>
            <span class="agent-dot" aria-hidden="true"></span>
            ${node.who}
            <${Said}> </${Said}>
          </span>
          <span class="quiet">
            ${verb}
            <${Said}> </${Said}>
          </span>
          <span class=${`agent-name hue-${hueOf(node.whom)}`}>
            ${node.whom}
            <${Said}>, </${Said}>
          </span>
          <span class="node-text">${node.text}</span>
        </span>
        <${Cell} class="span-cost" text=${usage} />
        <${Cell} class="span-took" text=${took}>
          ${node.status !== "ok" && html`<${Said}>, ${node.status}</${Said}>`}
        </${Cell}>
      `,
    };
  };
  return html`
    <div class="tree">
      <div class="axis" aria-hidden="true">
        <span class="span-number">#</span>
        <span class="node-what">Who asks whom</span>
        <span class="span-cost">Tokens, cost</span>
        <span class="span-took">Duration</span>
      </div>
      <${VirtualList}
        id="trace-rows"
        role="tree"
        label=${`Who asks whom, ${nodes.length} messages`}
        count=${nodes.length}
        rowHeight=${ROW}
        row=${row}
        onKey=${onKey}
        current=${index < 0 ? null : index}
        onMove=${(n) => onMove(nodes[n] ?? n)}
        onOpen=${(n) => onOpen(nodes[n])} />
    </div>
  `;
}

/** Return the node with those below it that match, or null. */
function pruned(node, matches) {
  const children = node.children.map((child) => pruned(child, matches)).filter(Boolean);
  return children.length || matches(node) ? { ...node, children } : null;
}
