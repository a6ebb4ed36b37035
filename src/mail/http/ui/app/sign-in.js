// The form for a token, and the way to the identity provider.

import { identityProvider } from "../api/api.js";
import { begin } from "../api/oidc.js";
import { html, useEffect, useRef, useState } from "../html.js";

/** `onToken(token)` rejects with a `Problem`; `notice` says why one has to sign in (again). */
export function SignIn({ notice, onToken }) {
  const [token, setToken] = useState("");
  const [problem, setProblem] = useState("");
  const [isBusy, setBusy] = useState(false);
  const [provider, setProvider] = useState(null);
  const field = useRef();
  useEffect(() => void identityProvider().then(setProvider, ({ message }) => setProblem(message)), []);
  const onProvider = () => begin(provider).catch(({ message }) => setProblem(message));
  const onSubmit = async (event) => {
    event.preventDefault();
    if (isBusy) return;
    setBusy(true);
    setProblem("");
    try {
      await onToken(token.trim());
    } catch (error) {
      setProblem(error.status === 401 ? "Invalid or revoked token." : error.message);
      setBusy(false);
      field.current?.select();
    }
  };
  const said = problem || notice;
  return html`
    <main id="main" class="sign-in" tabindex="-1">
      <form class="card" aria-labelledby="sign-in-title" autocomplete="off" onSubmit=${onSubmit}>
        <h2 id="sign-in-title">Sign in</h2>
        ${
          provider &&
          html`
            <button type="button" class="button primary" onClick=${onProvider}>
              Sign in at ${new URL(provider.authorization_endpoint).host}
            </button>
            <p class="quiet">Or with a token:</p>
          `
        }
        <div class="field">
          <label for="token">Token</label>
          <input
            id="token"
            ref=${field}
            type="password"
            required
            spellcheck="false"
            autocomplete="off"
            autofocus
            aria-describedby="token-problem token-help"
            aria-invalid=${problem ? "true" : null}
            value=${token}
            onInput=${(event) => setToken(event.currentTarget.value)} />
          <p id="token-problem" class="field-problem" role="alert">${said}</p>
        </div>
        <button type="submit" class="button primary" disabled=${isBusy}>${isBusy ? "Signing in…" : "Sign in"}</button>
        <div id="token-help" class="quiet">
          <p>
            On the server's machine,${" "}
            <code>mail ui</code>
            ${" "}opens this page signed in. This creates a token:
          </p>
          <pre>mail token create --role user --id you</pre>
          <p>The tab forgets it when you close it.</p>
        </div>
      </form>
    </main>
  `;
}
