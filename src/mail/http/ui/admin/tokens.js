// API tokens: list and revoke them, and the command that creates one.

import { Chip } from "../components/chip.js";
import { Ago, formatDate } from "../components/duration.js";
import { useData } from "../components/use-data.js";
import { html } from "../html.js";
import { Adding, Page, RowButton, Small, Table, useActs } from "./page.js";
import { revokeToken, tokens } from "./requests.js";

const ABOUT =
  "API keys that this server has issued, and the sessions of browsers that signed in with a link. The " +
  "server stores only their digests.";

const COLUMNS = [["Caller", "wide"], ["Role"], ["Kind"], ["Created", "nowrap"], ["Expires"], ["", "actions"]];
const COMMAND = "mail token create --role user --id alice --days 90";

export function Tokens() {
  const data = useData(tokens);
  const { said, ask } = useActs(data);
  const revoke = (token) => {
    const children = html`
      <p>
        It is refused immediately, and by other processes of the server within five seconds. The tasks of${" "}
        <strong>${token.role}:${token.id}</strong>
        ${" "}stay.
      </p>
      ${!token.session && html`<p>Sessions of sign-in links that were made with it end as well.</p>`}
      ${token.current && html`<p><strong>This page uses it: sign in again afterwards.</strong></p>`}
    `;
    ask(
      { title: "Revoke this token?", action: "Revoke", children },
      () => revokeToken(token.number),
      () => `The token of ${token.role}:${token.id} is revoked.`,
    );
  };
  return html`
    <${Page} title="Tokens" about=${ABOUT} data=${data}>
      ${(found) => html`
        ${said}
        <${Adding} title="Create a token" command=${COMMAND} />
        <${Table}
          label="Tokens"
          columns=${COLUMNS}
          rows=${found.map((token) => [
            token.number,
            html`
              ${token.id}${
                token.current &&
                html`
                  ${" "}
                  <${Chip} tone="accent">you</${Chip}>
                `
              }
            `,
            token.role,
            html`
              ${token.session ? "browser session" : "API key"}
              <${Small}>${token.number}</${Small}>
            `,
            html`<${Ago} time=${token.created} />`,
            token.expires ? html`<time datetime=${token.expires}>${formatDate(token.expires)}</time>` : "never",
            html`
              <${RowButton}
                label=${`Revoke the token of ${token.role}:${token.id}, number ${token.number}`}
                onClick=${() => revoke(token)}>
                Revoke
              </${RowButton}>
            `,
          ])} />
      `}
    </${Page}>
  `;
}
