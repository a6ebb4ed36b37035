// Signing in at an identity provider, which sends people back with a code (RFC 6749, section 4.1, and RFC 7636).

import { Problem } from "./api.js";

/** Where `{verifier, state, hash}` is kept while the person is at the provider. */
const STARTED = "mail-provider";

const base64url = (bytes) =>
  btoa(String.fromCharCode(...new Uint8Array(bytes)))
    .replaceAll("+", "-")
    .replaceAll("/", "_")
    .replaceAll("=", "");

const random = () => base64url(crypto.getRandomValues(new Uint8Array(32)));

/** Where the provider sends people: this page. */
const address = () => location.origin + location.pathname;

/** Leave for the provider. Throws a `Problem` where browsers have no cryptography: on a page without https. */
export async function begin({ authorization_endpoint, client_id, scope }) {
  if (!crypto.subtle) throw new Problem(400, "This needs https: open the page by its https address.");
  const [verifier, state] = [random(), random()];
  sessionStorage.setItem(STARTED, JSON.stringify({ verifier, state, hash: location.hash }));
  const challenge = await crypto.subtle.digest("SHA-256", new TextEncoder().encode(verifier));
  const url = new URL(authorization_endpoint);
  for (const [name, text] of Object.entries({
    response_type: "code",
    client_id,
    scope,
    state,
    redirect_uri: address(),
    code_challenge: base64url(challenge),
    code_challenge_method: "S256",
  }))
    url.searchParams.set(name, text);
  location.assign(url);
}

const given = () => Object.fromEntries(new URLSearchParams(location.search));

/** Whether the provider has sent the person back. */
export const isBack = () => "state" in given();

/** Return `{code, verifier, redirect_uri}`. Throws a `Problem` if the provider refuses, or this tab did not ask it. */
export function answer() {
  const { code, state, error, error_description } = given();
  const started = JSON.parse(sessionStorage.getItem(STARTED) ?? "{}");
  if (started.state !== state) throw new Problem(400, "This tab didn't ask for this sign-in. Sign in again.");
  if (!code) throw new Problem(401, error_description || `The identity provider answered: ${error}.`);
  return { code, verifier: started.verifier, redirect_uri: address() };
}

/** Take the answer out of the address, and return the hash that it had before. */
export function end() {
  const { hash = "" } = JSON.parse(sessionStorage.getItem(STARTED) ?? "{}");
  sessionStorage.removeItem(STARTED);
  history.replaceState(null, "", location.pathname + hash);
  return hash;
}
