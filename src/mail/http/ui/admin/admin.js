// The view for administrators: a page for each subject.

import { Notice } from "../components/notice.js";
import { html } from "../html.js";
import { Audit } from "./audit.js";
import { DeadLetters } from "./dead-letters.js";
import { Drafts } from "./drafts.js";
import { LoadedSwarm } from "./loaded-swarm.js";
import { Registry } from "./registry.js";
import { AllTasks } from "./all-tasks.js";
import { Schedules } from "./schedules.js";
import { Tokens } from "./tokens.js";
import { Usage } from "./usage.js";
import { Webhooks } from "./webhooks.js";

const PAGES = [
  { id: "tasks", name: "All tasks", of: AllTasks },
  { id: "usage", name: "Usage and cost", of: Usage },
  { id: "dead-letters", name: "Dead letters", of: DeadLetters },
  { id: "drafts", name: "Drafts", of: Drafts },
  { id: "swarm", name: "Loaded swarm", of: LoadedSwarm },
  { id: "swarms", name: "Other swarms", of: Registry },
  { id: "schedules", name: "Schedules", of: Schedules },
  { id: "webhooks", name: "Webhooks", of: Webhooks },
  { id: "tokens", name: "Tokens", of: Tokens },
  { id: "audit", name: "Audit", of: Audit },
];

/** `page` is the id of a page; null for the first. */
export function Admin({ caller, swarm, page }) {
  if (!caller.isAdmin)
    return html`
      <div class="admin-page"><${Notice}>This view is for administrators. You are signed in as a user.</${Notice}></div>
    `;
  const shown = PAGES.find(({ id }) => id === page) ?? PAGES[0];
  return html`
    <div class="admin">
      <nav class="admin-pages" aria-label="Administration">
        ${PAGES.map(
          ({ id, name }) => html`
            <a key=${id} href=${`#admin=${id}`} aria-current=${id === shown.id ? "page" : null}>${name}</a>
          `,
        )}
      </nav>
      <div class="admin-body"><${shown.of} key=${shown.id} caller=${caller} swarm=${swarm} /></div>
    </div>
  `;
}
