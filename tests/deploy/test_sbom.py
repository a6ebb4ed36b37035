"""What `scripts/dev.py sbom` lists: each pinned package, with the hashes of its files."""

import json
import re
import sys
from hashlib import sha256
from pathlib import Path

import pytest
from deploy_tools import ROOT, find_tool

sys.path.insert(0, str(ROOT / "scripts"))

import dev


def test_a_bill_has_each_pin_and_its_hashes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    find_tool("sbom", "cyclonedx-py")
    locks = [ROOT / "requirements" / name for name in ("lambda-identity.txt", "extra-mcp.txt")]
    monkeypatch.setattr(dev, "BILLS", {"both": locks})
    monkeypatch.setattr(dev, "set_up_tools", lambda *_: None)
    assert dev.sbom([str(tmp_path)]) == 0
    bill = json.loads((tmp_path / "both.cdx.json").read_text(encoding="utf-8"))
    assert (bill["bomFormat"], bill["specVersion"]) == ("CycloneDX", "1.6")
    assert bill["metadata"]["component"]["name"] == "mail-serverless"
    text = "".join(lock.read_text(encoding="utf-8") for lock in locks)
    pins = set(re.findall(r"^([\w.-]+)==([^\s;]+)", text, re.MULTILINE))
    assert {(each["name"], each["version"]) for each in bill["components"]} == pins
    listed = {
        found["content"]
        for each in bill["components"]
        for reference in each["externalReferences"]
        for found in reference.get("hashes", ())
    }
    assert listed == set(re.findall(r"sha256:(\w{64})", text))


def test_the_libraries_of_the_page_are_in_it() -> None:
    """All that its folder has, with their hashes, which `tests/ui` compares."""
    found = dev.page_libraries()
    folder = ROOT / dev.PAGE / "vendor"
    hashes = {sha256(path.read_bytes()).hexdigest() for path in folder.glob("*.js")}
    assert {each["hashes"][0]["content"] for each in found} == hashes
    assert {str(each["purl"]).rpartition("@")[0] for each in found} == {
        *(f"pkg:npm/{name}" for name in ("preact", "htm", "marked", "%40tanstack/virtual-core")),
        *(f"pkg:npm/%40dagrejs/{name}" for name in ("dagre", "graphlib")),
    }


def test_all_that_is_built_has_one() -> None:
    built = {path.stem for path in (ROOT / "requirements").glob("lambda-*.in")}
    assert dev.BILLS.keys() == built | {"image", "package"}
    extras = re.search(r"^ARG EXTRAS=(.*)$", (ROOT / "Dockerfile").read_text(encoding="utf-8"), re.MULTILINE)
    assert extras is not None
    assert {path.stem for path in dev.BILLS["image"]} == {
        "run",
        *(f"extra-{name}" for name in extras[1].split(",")),
    }
