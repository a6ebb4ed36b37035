// The bar on top: the swarm and its health, the views, and who is signed in.

import { Chip } from "../components/chip.js";
import { IconButton } from "../components/button.js";
import { Icon } from "../components/icons.js";
import { html } from "../html.js";
import { formatRoute } from "./router.js";
import { useStore } from "./store.js";
import { ThemeButton } from "./theme.js";

const VIEWS = [
  { view: "tasks", name: "Tasks" },
  { view: "approvals", name: "Needs you" },
  { view: "mail", name: "Mail" },
  { view: "swarm", name: "Swarm" },
  { view: "admin", name: "Admin", isForAdmins: true },
];

function Health({ connection }) {
  useStore(connection);
  const { isOffline, status } = connection;
  const tone = isOffline ? "bad" : status === "healthy" ? "good" : "warn";
  const text = isOffline ? "offline" : status;
  return html`
    <span class="health" role="status">
      ${
        text &&
        html`
          <${Chip}
            tone=${tone}
            dot
            title=${isOffline ? "The server can't be reached. Trying again…" : "The server's status"}>
            ${text}
          </${Chip}>
        `
      }
    </span>
  `;
}

function Views({ route, caller, waiting }) {
  useStore(waiting);
  const views = VIEWS.filter(({ isForAdmins }) => !isForAdmins || caller.isAdmin);
  return html`
    <nav class="views" aria-label="Views">
      ${views.map(
        ({ view, name }) => html`
          <a key=${view} href=${`#${formatRoute({ view })}`} aria-current=${route.view === view ? "page" : null}>
            ${name}
            ${
              view === "approvals" &&
              waiting.count &&
              html`
                ${" "}
                <${Chip} tone="warn">${waiting.count}</${Chip}>
              `
            }
          </a>
        `,
      )}
    </nav>
  `;
}

export function Header({ connection, route, swarm, caller, waiting, onSignOut }) {
  return html`
    <header class="bar">
      <h1 class="brand">
        <a href="#">
          <${Icon} name="mail" />
          <span class=${swarm ? "swarm-name" : ""}>${swarm?.name ?? "MAIL"}</span>
        </a>
      </h1>
      <${Health} connection=${connection} />
      ${caller && html`<${Views} route=${route} caller=${caller} waiting=${waiting} />`}
      <span class="space"></span>
      ${
        caller &&
        html`
          <span class="who" title=${`Signed in as ${caller.id}, role ${caller.role}`}>
            ${caller.id}${caller.id !== caller.role && html`<span class="quiet"> · ${caller.role}</span>`}
          </span>
        `
      }
      <${ThemeButton} />
      ${caller && html`<${IconButton} icon="sign-out" label="Sign out" onClick=${onSignOut} />`}
    </header>
  `;
}
