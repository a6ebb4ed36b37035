"""No release stores what the one before it can't read: a rule about `tests/fixtures/forms.json`.

The file has, for each stored type, the values of its enumerations and the fields that it can't be read without. To
write it again after a change:

    PYTHONPATH=tests .venv/bin/python tests/unit/test_stored_forms.py
"""

import json
from collections.abc import Iterator
from typing import Any

from pydantic import TypeAdapter
from support.engines.aws import ROOT
from support.previous_release import file_of_previous

from mail.adapters.aws.compression import DICTIONARIES, PRESENT
from mail.adapters.shared.codec import _EVENTS
from mail.core.task.documents import LoadedSwarm
from mail.core.task.interswarm import PeerHealth, PeerRecord
from mail.core.task.stored import _PERMITS, _WAIT, FORM, STORED_TYPES
from mail.core.task.webhooks import WebhookRecord

PATH = "tests/fixtures/forms.json"

Known = dict[str, list[str]]


def known() -> Known:
    """What this version reads: the values of each enumeration, and the fields that each type requires."""
    documents = (PeerRecord, PeerHealth, WebhookRecord, LoadedSwarm)
    found = {"form": set(map(str, range(1, FORM + 1))), "dictionary": set(map(str, DICTIONARIES))}
    for adapter in (*STORED_TYPES, _PERMITS, _WAIT, _EVENTS, *map(TypeAdapter, documents)):
        schema = adapter.json_schema()
        for name, each in {**schema.get("$defs", {}), schema.get("title", "list"): schema}.items():
            for place, values in _known(each, name):
                found.setdefault(place, set()).update(values)
    return {name: sorted(values) for name, values in sorted(found.items())}


def _known(schema: Any, place: str) -> Iterator[tuple[str, list[str]]]:
    if not isinstance(schema, dict):
        return
    if values := schema.get("enum") or ([schema["const"]] if "const" in schema else []):
        yield place, [str(value) for value in values]
    if schema.get("required"):
        yield f"{place} requires", schema["required"]
    for name, inner in schema.get("properties", {}).items():
        yield from _known(inner, f"{place}.{name}")
    for name in ("anyOf", "oneOf", "allOf", "prefixItems"):
        for inner in schema.get(name, ()):
            yield from _known(inner, place)
    for name in ("items", "additionalProperties"):
        yield from _known(schema.get(name), place)


def problems(previous: Known, present: Known, not_written_yet: list[str]) -> list[str]:
    """What the previous release could not read of what this one may write."""
    found = []
    for place, before in previous.items():
        now = present.get(place)
        if now is None:
            continue  # the type is gone, and with it the field that the previous release knows
        if place.endswith(" requires"):
            found += [f"{place} {name}: write it on" for name in sorted({*before} - {*now})]
        else:
            new = [f"{place}={value}" for value in now if value not in before]
            found += [f"{each}: list it as not written yet" for each in new if each not in not_written_yet]
    return found


def test_the_file_has_what_this_version_reads() -> None:
    stored = json.loads((ROOT / PATH).read_text(encoding="utf-8"))
    assert stored["reads"] == known(), "write it again: see the beginning of this file"


def test_the_previous_release_reads_what_this_one_writes() -> None:
    present = json.loads((ROOT / PATH).read_text(encoding="utf-8"))
    previous = json.loads(file_of_previous(PATH))
    assert problems(previous["reads"], present["reads"], present["not_written_yet"]) == []
    assert f"dictionary={PRESENT}" not in present["not_written_yet"]


def test_what_breaks_the_rule_is_found() -> None:
    before = {"form": ["1"], "TaskStatus": ["running"], "Lease requires": ["token", "expires"]}
    after = {"form": ["2"], "TaskStatus": ["asleep", "running"], "Lease requires": ["token"], "New": ["a"]}
    found = ["form=2: list it as not written yet", "Lease requires expires: write it on"]
    assert problems(before, after, ["TaskStatus=asleep"]) == found


if __name__ == "__main__":
    kept = json.loads((ROOT / PATH).read_text(encoding="utf-8")) if (ROOT / PATH).exists() else {}
    text = {"not_written_yet": kept.get("not_written_yet", []), "reads": known()}
    (ROOT / PATH).write_text(json.dumps(text, indent=1) + "\n", encoding="utf-8")
