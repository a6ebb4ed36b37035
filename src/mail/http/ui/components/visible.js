// Text in which nothing is hidden.

const EMOJI =
  "\\xa9\\xae\\u203c\\u2049\\u2122\\u2139\\u2190-\\u21ff\\u2300-\\u23ff\\u24c2\\u25a0-\\u27bf" +
  "\\u2900-\\u297f\\u2b00-\\u2bff\\u3030\\u303d\\u3297\\u3299\\u{1f000}-\\u{1faff}";
/** Scripts whose letters take other forms beside a joiner: Arabic, those of India, Burmese, Khmer, Mongolian. */
const JOINING =
  "\\u0620-\\u08ff\\u0900-\\u0dff\\u1000-\\u109f\\u1780-\\u17b3\\u17b6-\\u17ff\\u1820-\\u18aa" +
  "\\ua840-\\ua87f\\ua8e0-\\ua8ff\\uaa60-\\uaa7f\\ufb50-\\ufdff\\ufe70-\\ufefc\\u{11000}-\\u{114ff}";
const VIRAMA = "\\u094d\\u09cd\\u0a4d\\u0acd\\u0b4d\\u0bcd\\u0c4d\\u0ccd\\u0d4d\\u0dca";

/** Characters that don't show and change what does; core/protocol/visible_text.py has the same. */
const HIDDEN = new RegExp(
  // eslint-disable-next-line no-misleading-character-class
  [
    // what a script or an emoji needs is kept …
    `(?<=[${VIRAMA}])[\\u200c\\u200d]|(?<=[${JOINING}])[\\u200c\\u200d](?=[${JOINING}])`,
    `(?<=[${EMOJI}\\ufe0f])\\u200d(?=[${EMOJI}])|(?<=[${EMOJI}])[\\ufe0e\\ufe0f]|(?<=[0-9#*])\\ufe0f(?=\\u20e3)`,
    "(?<=[\\u3400-\\u9fff\\uf900-\\ufaff\\u{20000}-\\u{3ffff}])[\\ufe00-\\ufe02\\u{e0100}-\\u{e01ef}]|" +
      "(?<=[\\u1820-\\u18aa])[\\u180b-\\u180d\\u180f]",
    // … and the rest is escaped: control and format characters, invisible letters, tags, halves of pairs
    "([\\x00-\\x08\\x0b-\\x1f\\x7f-\\x9f\\xad\\u034f\\u061c\\u115f\\u1160\\u17b4\\u17b5\\u180b-\\u180f" +
      "\\u200b-\\u200f\\u2028-\\u202e\\u2060-\\u206f\\u3164\\ud800-\\udfff\\ufe00-\\ufe0f\\ufeff" +
      "\\uffa0\\ufff0-\\ufffb\\u{1bca0}-\\u{1bca3}\\u{1d173}-\\u{1d17a}\\u{e0000}-\\u{e0fff}])",
  ].join("|"),
  "gu",
);
const PLAIN = /^[\t\n\r -~]*$/;

const escape = (unit) => `\\u${unit.charCodeAt(0).toString(16).padStart(4, "0")}`;

/** Return a text with what is hidden in it escaped as in JSON, such as `\u202e`: in JSON text it means the same. */
export function visible(text) {
  if (PLAIN.test(text)) return text;
  return text
    .replace(/\r\n/g, "\n")
    .replace(HIDDEN, (found, hidden) => (hidden === undefined ? found : hidden.split("").map(escape).join("")));
}

const RIGHT_TO_LEFT = /[\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufefc\u{10800}-\u{10fff}\u{1e800}-\u{1efff}]/u;

/** Whether a text has to be isolated, so that its direction does not move what stands beside it. */
export const turns = (text) => RIGHT_TO_LEFT.test(text);
