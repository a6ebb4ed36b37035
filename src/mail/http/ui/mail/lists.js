// Lists of addresses: who is on them, joining and leaving.

import { formatRoute } from "../app/router.js";
import { WorkButton } from "../components/button.js";
import { Chip } from "../components/chip.js";
import { TextField } from "../components/field.js";
import { Empty } from "../components/notice.js";
import { useWork } from "../components/use-work.js";
import { useData } from "../components/use-data.js";
import { plural } from "../components/words.js";
import { html, useState } from "../html.js";
import * as mail from "./api.js";

/** Return the lists as `useData` does; none unless they are shown. */
export const useLists = (isShown) => useData(async () => (isShown ? mail.lists() : null), { about: [isShown] });

export function ListItems({ found, open, own }) {
  const { data: lists, instead } = found;
  if (instead) return instead;
  if (!lists.length) return html`<${Empty} title="No lists yet"><p>An admin makes them.</p></${Empty}>`;
  return html`
    <ul class="task-items">
      ${lists.map((list) => {
        const address = mail.addressOf(list);
        return html`
          <li key=${address}>
            <a
              class="task-item"
              href=${`#${formatRoute({ view: "mail", box: "lists", entry: address })}`}
              aria-current=${address === open ? "true" : null}>
              <span class="title">${list.name}@${list.swarm}</span>
              <span class="facts">
                ${list.members.includes(own) && html`<${Chip} tone="good">joined</${Chip}>`}
                <span class="mail-who">${plural(list.members.length, "member")}</span>
              </span>
            </a>
          </li>
        `;
      })}
    </ul>
  `;
}

const JOINING = {
  open: "Everybody may join.",
  approval: "The owner decides who joins.",
  "admin-only": "The owner adds members.",
};
const POSTING = {
  open: "Everybody may write to it.",
  "members-only": "Its members may write to it.",
  "admin-only": "Its owner may write to it.",
};

/** The form with which the owner of a list adds a member. */
function Adding({ onAdd }) {
  const [address, setAddress] = useState("");
  const onSubmit = async (event) => {
    event.preventDefault();
    await onAdd(address.trim());
    setAddress("");
  };
  return html`
    <form class="mail-add" onSubmit=${onSubmit}>
      <${TextField} label="New member" id="new-member" required value=${address} onType=${setAddress} />
      <button type="submit" class="button">Add</button>
    </form>
  `;
}

/** An address of a list, with what its owner may do about it. */
function Member({ address, action, onAction, onRemove }) {
  return html`
    <li class="row">
      <span class="mail-who">${address}</span>
      ${onAction && html`<${WorkButton} class="button small" onClick=${onAction}>${action}</${WorkButton}>`}
      ${
        onRemove &&
        html`
          <${WorkButton} class="button small" aria-label=${`Remove ${address}`} onClick=${onRemove}>
            Remove
          </${WorkButton}>
        `
      }
    </li>
  `;
}

export function List({ list, own, onChange }) {
  const { perform, said } = useWork({ repeats: true });
  const act = (work) => perform(async () => onChange(await work()));
  const address = mail.addressOf(list);
  const { members, pending, policy, owner } = list;
  const isMember = members.includes(own);
  const waits = pending.includes(own);
  const manages = own === owner; // a browser's session lets no admin do that for others
  return html`
    <div class="mail-thread">
      <h2>${address}</h2>
      <p class="quiet">
        ${policy.visibility === "private" && "Only its members see it. "}${JOINING[policy.join_policy]}
        ${" "}${POSTING[policy.send_policy]} Its owner is ${owner}.
      </p>
      ${said}
      <div class="row">
        ${
          isMember || waits
            ? html`
                <${WorkButton} onClick=${() => act(() => mail.leave(list))}>
                  ${waits ? "Withdraw" : "Leave"}
                </${WorkButton}>
              `
            : policy.join_policy !== "admin-only" &&
              html`
                <${WorkButton} class="button primary" onClick=${() => act(() => mail.join(list))}>Join</${WorkButton}>
              `
        }
        <a class="button" href=${`#${formatRoute({ view: "mail", box: "new", entry: address })}`}>Write to it</a>
      </div>
      ${waits && html`<p class="quiet">Your request to join waits for the owner.</p>`}
      ${
        manages &&
        pending.length > 0 &&
        html`
          <h3>Ask to join</h3>
          <ul class="stack-small">
            ${pending.map(
              (each) => html`
                <${Member}
                  key=${each}
                  address=${each}
                  action="Accept"
                  onAction=${() => act(() => mail.addMember(list, each))}
                  onRemove=${() => act(() => mail.removeMember(list, each))} />
              `,
            )}
          </ul>
        `
      }
      <h3>Members</h3>
      ${members.length === 0 && html`<p class="quiet">Nobody yet.</p>`}
      <ul class="stack-small">
        ${members.map(
          (each) => html`
            <${Member}
              key=${each}
              address=${each}
              onRemove=${manages ? () => act(() => mail.removeMember(list, each)) : null} />
          `,
        )}
      </ul>
      ${manages && html`<${Adding} onAdd=${(each) => act(() => mail.addMember(list, each))} />`}
    </div>
  `;
}
