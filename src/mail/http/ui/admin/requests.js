// The endpoints for administrators, and those of the caller's own webhooks.

import * as api from "../api/api.js";

/** The requests of `api`, as an admin. */
const asAdmin = (options) => ({ ...options, bearer: api.token.ofAdmin() });
const request = (method, path, options) => api.request(method, path, asAdmin(options));
const read = (path, query) => api.read(path, query, asAdmin());
const post = (path, body) => api.post(path, body, asAdmin());

/** Return the newest tasks of all callers, or of one, without what is written in them. */
export async function allTasks({ limit, status, caller }) {
  const whose = caller ? { caller } : { all: true };
  const response = await request("GET", "tasks", { query: { fields: "summary", limit, status, ...whose } });
  const tasks = Object.values(await response.json());
  tasks.sort((a, b) => Date.parse(b.start_time) - Date.parse(a.start_time));
  return { tasks, hasMore: Boolean(response.headers.get("X-Next-Cursor")) };
}

/** Return the turns of a task that are over, without what is written in them. */
export async function turns({ task_id, caller }) {
  const found = [];
  let cursor;
  do {
    const response = await request("GET", "task/turns", { query: { task_id, caller, cursor } });
    found.push(...(await response.json()).turns);
    cursor = response.headers.get("X-Next-Cursor");
  } while (cursor);
  return found;
}

/** Return the items of the conversation of another caller's task, who sees the reason. */
export async function openedItems({ task_id, caller, reason }) {
  const found = [];
  let after;
  do {
    const response = await request("GET", "task", { query: { task_id, caller, reason, items: true, after } });
    found.push(...(await response.json()).items);
    after = response.headers.get("X-Next-Cursor");
  } while (after);
  return found;
}

export const cancelTask = ({ task_id, caller, reason }) =>
  request("POST", "task/cancel", { body: { task_id, caller, reason }, headers: { Prefer: "wait=0" } });

export const drafts = async () => (await read("drafts")).drafts;
export const draft = (name) => read(`drafts/${encodeURIComponent(name)}`);

export const tokens = async () => (await read("tokens")).tokens;
export const revokeToken = (number) => request("DELETE", `tokens/${encodeURIComponent(number)}`);

export const swarms = async () => (await read("swarms", { all: true })).swarms;
export const registerSwarm = (swarm) => post("swarms", swarm);
export const removeSwarm = (name) => request("DELETE", `swarms/${encodeURIComponent(name)}`);

export const dumpSwarm = async () => (await read("swarms/dump")).swarm;
export const checkSwarm = (json) => post("swarms/check", { json });
export const loadSwarm = (json) => post("swarms/load", { json });

/** Return a page of the dead letters of all callers. */
export async function deadLetters({ limit }) {
  const page = await read("dead-letters", { limit });
  return { letters: page.dead_letters, hasMore: Boolean(page.next_cursor) };
}

/** Redrive or discard dead letters, all pages of them; returns how many were, and those that could not be. */
export async function settleLetters(action, chosen) {
  const done = { count: 0, failed: [] };
  let cursor;
  do {
    const page = await post(`dead-letters/${action}`, { ...chosen, cursor });
    done.count += (page.redriven ?? page.discarded).length;
    done.failed.push(...page.failed);
    cursor = page.next_cursor;
  } while (cursor);
  return done;
}

/** Return the newest entries of the audit, all of them or those of a caller or of an act. */
export async function audit({ limit, caller, act }) {
  const entries = [];
  let cursor;
  do {
    const query = { limit: limit - entries.length, caller: caller || undefined, act: act || undefined, cursor };
    const page = await read("audit", query);
    entries.push(...page.entries);
    cursor = page.cursor;
  } while (cursor && entries.length < limit);
  return { entries, hasMore: Boolean(cursor) };
}

export const schedules = async () => (await read("schedules")).schedules;
export const changeSchedule = (name, changes) => post(`schedules/${encodeURIComponent(name)}`, changes);
export const runSchedule = (name) => post(`schedules/${encodeURIComponent(name)}/run`);
export const deleteSchedule = (name) => request("DELETE", `schedules/${encodeURIComponent(name)}`);

export const webhooks = async () => (await api.read("webhooks")).webhooks;
export const registerWebhook = (webhook) => api.post("webhooks", webhook);
export const deleteWebhook = (id) => api.request("DELETE", `webhooks/${encodeURIComponent(id)}`);

/** Return the webhooks of all callers, without what is secret. */
export const allWebhooks = async () => (await read("webhooks", { all: true })).webhooks;
export const disableWebhook = async ({ id, caller }) =>
  (await request("DELETE", `webhooks/${encodeURIComponent(id)}`, { query: { caller } })).json();

/**
 * Return the pages of usage since a time, of a version of the swarm (undefined: from the start, all), `most` of them;
 * `isComplete` unless there are more.
 */
export async function usage({ since, version, most = 10 }) {
  const pages = [];
  let cursor;
  do {
    const page = await read("usage", { since, version, cursor });
    pages.push(page);
    cursor = page.cursor;
  } while (cursor && pages.length < most);
  return { pages, isComplete: !cursor };
}
