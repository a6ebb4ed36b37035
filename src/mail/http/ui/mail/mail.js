// Mail of MAIL 2.0: the boxes of the caller, threads, lists, and writing. Loaded when it is opened first.

import { formatRoute } from "../app/router.js";
import { Icon } from "../components/icons.js";
import { Empty, Loading, Notice } from "../components/notice.js";
import { useData } from "../components/use-data.js";
import { html, useEffect, useRef, useState } from "../html.js";
import * as mail from "./api.js";
import { Entries, useBox } from "./box.js";
import { Compose, forgetWritten } from "./compose.js";
import { List, ListItems, useLists } from "./lists.js";
import { Thread } from "./thread.js";

const style = document.createElement("link");
style.rel = "stylesheet";
style.href = new URL("mail.css", import.meta.url).href;
document.head.append(style);

const PARTS = [
  ["inbox", "Inbox"],
  ["outbox", "Sent"],
  ["drafts", "Drafts"],
  ["trash", "Trash"],
  ["lists", "Lists"],
];

let lastCaller = ""; // who has written last

function Parts({ shown }) {
  return html`
    <nav class="mail-parts" aria-label="Boxes">
      ${PARTS.map(
        ([box, name]) => html`
          <a key=${box} href=${`#${formatRoute({ view: "mail", box })}`} aria-current=${box === shown ? "page" : null}>
            ${name}
          </a>
        `,
      )}
    </nav>
  `;
}

/** A draft that is written on. */
function Draft({ id, own, ...others }) {
  const { data, instead } = useData(() => mail.open("drafts", id), { about: [id] });
  if (instead) return html`<div class="task-note">${instead}</div>`;
  const { subject, body, reply_to } = data.draft;
  return html`<${Compose} own=${own} place=${id} start=${{ id, subject, body, reply_to }} ...${others} />`;
}

/** The id of a caller that no address can have. */
const REFUSED =
  "Your id can't be an address of MAIL 2.0. Ids of 1 to 32 lower-case letters and digits can, with single hyphens " +
  "between them.";

function Opened({ route, box, lists, own, navigate, say }) {
  const { box: name, entry } = route;
  const done = (text) => {
    say(text);
    void box?.refresh();
    navigate({ view: "mail", box: name === "drafts" ? "drafts" : "inbox" });
  };
  const writing = { own, onSent: () => done("Sent."), onSaved: () => done("Saved as a draft.") };
  if (name === "new") {
    return html`<${Compose} key=${entry} place=${entry ?? ""} start=${entry ? { to: entry } : {}} ...${writing} />`;
  }
  if (!entry) return html`<${Empty} title=${name === "lists" ? "No list is open" : "No message is open"} />`;
  if (name === "lists") {
    const list = lists.data?.find((each) => mail.addressOf(each) === entry);
    if (!list) return lists.data ? html`<${Empty} title="This list does not exist" />` : html`<${Loading} />`;
    return html`<${List} key=${entry} list=${list} own=${own} onChange=${lists.reload} />`;
  }
  if (name === "drafts") return html`<${Draft} key=${entry} id=${entry} ...${writing} />`;
  return html`<${Thread} key=${entry} box=${box} id=${entry} own=${own} navigate=${navigate} onSaid=${say} />`;
}

/** `route` has the `box` and the `entry` that are shown. */
export function Mail({ route, caller, navigate }) {
  const [own, setOwn] = useState(null);
  const [problem, setProblem] = useState(null);
  const [said, say] = useState("");
  const { box: name, entry } = route;
  const shown = name === "new" ? "inbox" : name;
  const box = useBox(own && shown !== "lists" ? shown : null);
  const lists = useLists(Boolean(own) && shown === "lists");
  const hasOpen = Boolean(entry || name === "new");
  const pane = useRef();
  useEffect(() => {
    if (lastCaller !== `${caller.role}:${caller.id}`) forgetWritten();
    lastCaller = `${caller.role}:${caller.id}`;
    mail.ownAddress().then(setOwn, setProblem);
  }, []);
  useEffect(() => {
    // What had the focus on a narrow screen is gone.
    if (!document.activeElement?.checkVisibility?.()) document.getElementById("main").focus();
  }, [hasOpen]);
  useEffect(() => {
    const timer = said && setTimeout(() => say(""), 5_000);
    return () => clearTimeout(timer);
  }, [said]);
  if (problem) {
    const text = problem.status === 401 ? REFUSED : problem.message;
    return html`<div class="task-note"><${Notice} tone="bad">${text}</${Notice}></div>`;
  }
  if (!own) return html`<${Loading} />`;
  return html`
    <div class=${`tasks-view mail-view ${hasOpen ? "has-task" : ""}`}>
      <section class="task-pane" aria-label="Mail" ref=${pane}>
        <div class="task-pane-head">
          <h2>Mail</h2>
          <a class="button small primary" href=${`#${formatRoute({ view: "mail", box: "new" })}`}>
            <${Icon} name="edit" />
            Write
          </a>
        </div>
        <p class="quiet small-text mail-own">${own}</p>
        <${Parts} shown=${shown} />
        <p class="mail-said small-text" role="status">${said}</p>
        ${
          box
            ? html`<${Entries} key=${shown} box=${box} open=${entry} navigate=${navigate} />`
            : html`<${ListItems} found=${lists} open=${entry} own=${own} />`
        }
      </section>
      <section class="task mail-open" aria-label=${name === "new" ? "New message" : "Opened"}>
        ${
          hasOpen &&
          html`
            <p class="only-narrow mail-back">
              <a class="button small" href=${`#${formatRoute({ view: "mail", box: shown })}`}>
                <${Icon} name="back" />
                ${PARTS.find(([each]) => each === shown)[1]}
              </a>
            </p>
          `
        }
        <${Opened} route=${route} box=${box} lists=${lists} own=${own} navigate=${navigate} say=${say} />
      </section>
    </div>
  `;
}
