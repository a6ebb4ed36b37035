// The routes of MAIL 2.0, as the page needs them.

import * as api from "../api/api.js";

/** Entries on a page of a box. */
export const PAGE = 20;

/** Return the JSON of a request below `/v2`; the reasons of a refusal, which it has as a list, become one text. */
async function ask(method, path, options) {
  try {
    return await (await api.request(method, `v2/${path}`, options)).json();
  } catch (problem) {
    if (Array.isArray(problem.detail))
      problem.message = problem.detail.map(({ loc, msg }) => `${loc.slice(1).join(" ")}: ${msg}`).join("; ");
    throw problem;
  }
}

const at = (...parts) => parts.map(encodeURIComponent).join("/");

/** Return the address of the caller. */
export async function ownAddress() {
  const { ua_type: kind, host, ...names } = (await ask("GET", "auth/whoami")).user_agent.user_agent;
  return `${kind}:${names.user_id ?? names.admin_id}@${host}`;
}

/** Return a part of a box: `entries`, and the offset `next` of what follows; null at the end. */
export async function page(box, { limit = PAGE, offset = 0, ...filters } = {}) {
  const { entries, metadata } = await ask("GET", box, { query: { limit, offset, ...filters } });
  const { total, returned, next_offset: next } = metadata;
  return { entries, next: next !== undefined ? next : offset + returned < total ? offset + returned : null };
}

/** Open an entry of a box, which is read from then on. */
export const open = async (box, id) => (await ask("GET", at(box, id))).entry;

/** Move a message of the inbox to the trash, or delete a draft or a message of the trash for good. */
export const remove = (box, id) => ask("DELETE", at(box, id));

export const restore = (id) => ask("POST", at("trash", id, "restore"));
export const clearTrash = () => ask("POST", "trash/clear");

/** Store a draft, or change the one that has an `id`; returns its id. */
export async function save({ id, ...draft }) {
  const { entry } = await (id
    ? ask("PATCH", at("drafts", id), { body: draft })
    : ask("POST", "drafts", { body: draft }));
  return entry.draft.draft_id;
}

/** Send a draft, once for each `key`; then the draft goes, unless its owner's mail is on hold. */
export async function send(id, recipients, key) {
  const { message } = await ask("POST", at("drafts", id, "send"), {
    body: { recipients },
    headers: { "Idempotency-Key": key },
  });
  await remove("drafts", id).catch(() => {});
  return message;
}

export const lists = async () => (await ask("GET", "lists")).lists;

/** Return the addresses of the agents that take mail of everybody. */
export async function agents(own) {
  const { swarms } = await ask("GET", "swarms");
  const found = await Promise.all(swarms.map(({ name }) => ask("GET", at("swarms", name))));
  const host = own.slice(own.lastIndexOf("@"));
  return found.flatMap(({ swarm }) => swarm.agents.map((name) => `${name}@${swarm.name}${host}`));
}

export const addressOf = ({ name, swarm, host }) => `list:${name}@${swarm}@${host}`;
export const join = (list) => ask("POST", at("lists", addressOf(list), "subscribe"));
export const leave = (list) => ask("POST", at("lists", addressOf(list), "unsubscribe"));
export const addMember = (list, address) =>
  ask("POST", at("lists", addressOf(list), "members"), { body: { member_address: address } });
export const removeMember = (list, address) => ask("DELETE", at("lists", addressOf(list), "members", address));
