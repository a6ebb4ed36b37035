// The graph of a swarm: nodes are agents, edges say who may write to whom. In a task, mail adds what the swarm
// doesn't declare.

/** The caller of a task, as a node. */
export const CALLER = "caller:";

/** An address as the graph names it: `name`, or `name@swarm` in another swarm. */
export const localName = (address, swarm) =>
  address.endsWith(`@${swarm}`) ? address.slice(0, -swarm.length - 1) : address;

const remoteSwarm = (id) => (id.includes("@") ? id.slice(id.indexOf("@") + 1) : null);

/** The key of an edge: the same in both directions. */
export const edgeKey = (a, b) => JSON.stringify(a < b ? [a, b] : [b, a]);

/**
 * `{root, nodes, edges}`: nodes are `{id, name, kind, swarm, agent}` with kind `agent`, `remote` or `caller`, edges are
 * `{key, from, to, both, isDeclared}`. Two agents that may write to each other share one edge.
 *
 * `mail` are the pairs `{from, to}` that have written to each other in a task, the caller among them as `CALLER`,
 * whose name is `caller`.
 */
export function graphOf(swarm, mail = [], caller = "Caller") {
  const nodes = new Map();
  const edges = new Map();
  const agents = new Map(swarm.agents.map((agent) => [agent.name, agent]));
  const add = (id) => {
    if (nodes.has(id)) return;
    const kind = id === CALLER ? "caller" : remoteSwarm(id) ? "remote" : "agent";
    const name = { agent: id, caller, remote: id.slice(0, id.indexOf("@")) }[kind];
    nodes.set(id, { id, name, kind, swarm: remoteSwarm(id), agent: agents.get(id) ?? null });
  };
  const link = (from, to, isDeclared) => {
    if (from === to) return;
    add(from);
    add(to);
    const key = edgeKey(from, to);
    const edge = edges.get(key);
    if (!edge) edges.set(key, { key, from, to, both: false, isDeclared });
    else if (edge.from === to) edge.both = true;
  };
  for (const { name } of swarm.agents) add(name);
  for (const { name, comm_targets: targets } of swarm.agents)
    for (const target of targets) link(name, localName(target, swarm.name), true);
  for (const { from, to } of mail) {
    // An answer needs no declaration: it follows the request's edge back.
    if (edges.get(edgeKey(from, to))?.isDeclared) continue;
    link(from, to, false);
  }
  return {
    root: nodes.has(CALLER) ? CALLER : swarm.entrypoint,
    nodes: [...nodes.values()],
    edges: [...edges.values()],
  };
}

/** The neighbours of a node: `{id, reads, writes}`, whether mail comes from it and goes to it. */
export function neighbours({ edges }, id) {
  return edges
    .filter(({ from, to }) => from === id || to === id)
    .map(({ from, to, both }) => ({
      id: from === id ? to : from,
      writes: both || from === id,
      reads: both || to === id,
    }));
}

/** The name of a model without its provider. */
export const shortName = (model) => model.split("/").at(-1);

/** The model of an agent, in short; "" if it is not known. */
export const modelOf = (agent) => (agent.model ? shortName(agent.model) : "");

/** The tools of an agent, those of MCP servers included as far as they are known. */
export const toolsOf = ({ actions, mcp_tools: ofServers = [] }) => [...actions, ...ofServers];

/** How many tools an agent has, or the name of its only one. */
export function toolNote(agent) {
  const tools = toolsOf(agent);
  if (!tools.length) return agent.mcp_servers?.length ? "MCP tools" : "";
  return tools.length === 1 ? tools[0] : `${tools.length} tools`;
}

/** How much mail an agent has got and sent in a task, in short. */
export const mailNote = ({ received, sent }) => `${received} in · ${sent} out`;

/** What stands below an agent's name. */
export function noteOf({ kind, agent }, entrypoint) {
  if (kind === "caller") return "caller";
  if (!agent) return kind === "remote" ? "" : "not in this swarm";
  const role = agent.name === entrypoint ? "entrypoint" : agent.can_complete_tasks ? "supervisor" : "";
  return [role, modelOf(agent)].filter(Boolean).join(" · ");
}
