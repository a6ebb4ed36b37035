// The arguments of a call as a form, made of the JSON Schema of its action; and what was changed in them.

import { Problem } from "../api/api.js";
import { exactJson } from "../components/exact.js";
import { visible } from "../components/visible.js";
import { html, useId } from "../html.js";

/** Return JSON text in which nothing is hidden. */
const jsonOf = (value) => visible(JSON.stringify(value, null, 2));

/** Return the kind of a field, by its schema or, without one, by its value; text with hidden signs is shown as JSON. */
export function kindOf(schema, value) {
  if (typeof value === "string" && visible(value) !== value) return "json";
  if (Array.isArray(schema?.enum) && schema.enum.every((choice) => typeof choice === "string")) return "choice";
  const type = schema?.type ?? (typeof value === "object" && JSON.isRawJSON?.(value) ? "number" : typeof value);
  if (type === "string") return "text";
  return ["boolean", "integer", "number"].includes(type) ? type : "json";
}

/** Return the fields of arguments: those of the schema in its order, then others that the call has. */
export function fieldsOf(parameters, args) {
  const properties = parameters?.properties ?? {};
  return [...new Set([...Object.keys(properties), ...Object.keys(args)])].map((name) => ({
    name,
    schema: properties[name],
    kind: kindOf(properties[name], args[name]),
    isRequired: name in properties ? (parameters.required ?? []).includes(name) : true,
  }));
}

/** Return a value as the form shows it: "" for none. */
export function shownAs(kind, value) {
  if (value === undefined) return "";
  return typeof value === "string" && kind !== "json" ? value : jsonOf(value);
}

const NUMBER = /^-?(0|[1-9]\d*)(\.\d+)?([eE][+-]?\d+)?$/;

/** Return what was typed into a field as JSON text; null to leave the argument out. Throws a `Problem`. */
export function readField({ name, kind, isRequired }, typed, wasGiven) {
  if (typed === "" && !isRequired && !(wasGiven && kind === "text")) return null;
  if (kind === "text" || kind === "choice") return JSON.stringify(typed);
  if (kind === "boolean") return typed;
  if (kind === "json") {
    try {
      return JSON.stringify(exactJson(typed));
    } catch {
      throw new Problem(400, `${name} is not valid JSON.`);
    }
  }
  const text = typed.trim();
  if (!NUMBER.test(text) || (kind === "integer" && /[.eE]/.test(text)))
    throw new Problem(400, `${name} must be ${kind === "integer" ? "a whole number" : "a number"}.`);
  return text;
}

/** Return the arguments that were typed as JSON text. Throws a `Problem`. */
export function readForm(fields, typed, args) {
  const read = fields
    .map((field) => [field.name, readField(field, typed[field.name], field.name in args)])
    .filter(([, text]) => text !== null);
  return `{${read.map(([name, text]) => `${JSON.stringify(name)}: ${text}`).join(", ")}}`;
}

function Field({ field, typed, onType }) {
  const id = useId();
  const { name, schema, kind, isRequired } = field;
  const shared = { id, value: typed, onInput: (event) => onType(event.currentTarget.value) };
  const about = schema?.description;
  const hint = about ? `${id}-hint` : null;
  const isLong = kind === "json" || typed.length > 60 || typed.includes("\n");
  const choices = kind === "boolean" ? ["true", "false"] : kind === "choice" ? schema.enum : null;
  let control;
  if (choices)
    control = html`
      <select ...${shared} aria-describedby=${hint}>
        ${(!isRequired || !typed) && html`<option value=""></option>`}
        ${choices.map((choice) => html`<option key=${choice} value=${choice}>${choice}</option>`)}
      </select>
    `;
  else if (isLong && kind !== "number" && kind !== "integer")
    control = html`
      <textarea
        ...${shared}
        class=${kind === "json" ? "mono" : ""}
        spellcheck=${kind === "json" ? "false" : null}
        rows=${Math.min(typed.split("\n").length + 1, 12)}
        aria-describedby=${hint}></textarea>
    `;
  else control = html`<input ...${shared} inputmode=${kind === "text" ? null : "decimal"} aria-describedby=${hint} />`;
  return html`
    <div class="field">
      <label for=${id}>
        ${name}${isRequired ? "" : html`<span class="quiet"> (optional)</span>`}
      </label>
      ${control}
      ${about && html`<p id=${hint} class="quiet small-text">${about}</p>`}
    </div>
  `;
}

/** `typed` has the text of each field, by its name. */
export function ArgumentsForm({ fields, typed, onType }) {
  return html`
    <div class="arguments-form">
      ${fields.map(
        (field) => html`
          <${Field}
            key=${field.name}
            field=${field}
            typed=${typed[field.name]}
            onType=${(text) => onType({ ...typed, [field.name]: text })} />
        `,
      )}
    </div>
  `;
}

/** Return the changes between arguments: `{name, before, after}`, as text; "" where there is no value. */
export function changesOf(before, after) {
  return [...new Set([...Object.keys(before), ...Object.keys(after)])]
    .map((name) => ({
      name,
      before: name in before ? jsonOf(before[name]) : "",
      after: name in after ? jsonOf(after[name]) : "",
    }))
    .filter((change) => change.before !== change.after);
}

/** What was changed, argument by argument. */
export function Changes({ before, after }) {
  const changes = changesOf(before, after);
  if (!changes.length) return html`<p class="quiet small-text">Nothing is changed.</p>`;
  return html`
    <dl class="arguments changes" aria-label="Changes">
      ${changes.map(
        (change) => html`
          <div key=${change.name}>
            <dt>${change.name}</dt>
            <dd>
              ${change.before && html`<del>${change.before}</del>`}
              ${change.after && html`<ins>${change.after}</ins>`}
            </dd>
          </div>
        `,
      )}
    </dl>
  `;
}
