"""Text in which nothing is hidden, for people who decide by what they read."""

import re

_EMOJI = (
    r"\xa9\xae\u203c\u2049\u2122\u2139\u2190-\u21ff\u2300-\u23ff\u24c2\u25a0-\u27bf\u2900-\u297f\u2b00-\u2bff\u3030\u303d"
    r"\u3297\u3299\U0001f000-\U0001faff"
)
_JOINING = (  # scripts whose letters take other forms beside a joiner: Arabic, of India, Burmese, Khmer, Mongolian
    r"\u0620-\u08ff\u0900-\u0dff\u1000-\u109f\u1780-\u17b3\u17b6-\u17ff\u1820-\u18aa\ua840-\ua87f\ua8e0-\ua8ff\uaa60-\uaa7f"
    r"\ufb50-\ufdff\ufe70-\ufefc\U00011000-\U000114ff"
)
_VIRAMA = r"\u094d\u09cd\u0a4d\u0acd\u0b4d\u0bcd\u0c4d\u0ccd\u0d4d\u0dca"
_HIDDEN = re.compile(
    # what a script or an emoji needs is kept …
    rf"(?<=[{_VIRAMA}])[\u200c\u200d]|(?<=[{_JOINING}])[\u200c\u200d](?=[{_JOINING}])"
    rf"|(?<=[{_EMOJI}\ufe0f])\u200d(?=[{_EMOJI}])|(?<=[{_EMOJI}])[\ufe0e\ufe0f]|(?<=[0-9#*])\ufe0f(?=\u20e3)"
    r"|(?<=[\u3400-\u9fff\uf900-\ufaff\U00020000-\U0003ffff])[\ufe00-\ufe02\U000e0100-\U000e01ef]"
    r"|(?<=[\u1820-\u18aa])[\u180b-\u180d\u180f]"
    # … and the rest is escaped: control and format characters, invisible letters, tags, halves of pairs
    r"|([\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u2028-\u202e\u2060-\u206f"
    r"\u3164\ud800-\udfff\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff])"
)
"""Characters that don't show and change what does, or that a terminal obeys. components/visible.js has the same for
the page.
"""


def printable(text: str) -> str:
    """Return text with what is hidden in it escaped, as JSON does it; line ends and tabs stay."""
    return _HIDDEN.sub(_escape, text.replace("\r\n", "\n"))


def _escape(found: re.Match[str]) -> str:
    if found[1] is None:
        return found[0]
    units = found[1].encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[at]:02x}{units[at + 1]:02x}" for at in range(0, len(units), 2))
