"""The plan of `mail aws-check`; `tests/e2e_aws` runs its steps."""

import io
import json
import os
from pathlib import Path

import pytest
from support.engines.aws import ROOT

from mail.cli.run import run
from mail.local_aws.deployment import read_template


def test_the_plan_has_a_step_for_each_parameter_or_says_why_not(capsys: pytest.CaptureFixture[str]) -> None:
    given = {"DomainName": "mail.example.com", "CertificateArn": "arn:aws:acm:x", "TurnMemory": "256"}
    options = [word for name, value in given.items() for word in ("--parameter", f"{name}={value}")]
    assert run(["aws-check", "--plan", "--json", *options]) == 0
    planned = json.loads(capsys.readouterr().out)
    shows = {step["step"]: step["shows"] for step in planned["steps"]}
    switched = {name.removeprefix("parameter ") for name in shows if name.startswith("parameter ")}
    parameters = read_template(ROOT / "template.yaml")["Parameters"]
    assert switched | planned["apart"].keys() == parameters.keys()
    assert not switched & planned["apart"].keys()
    assert (
        f"DomainName={given['DomainName']} CertificateArn={given['CertificateArn']},"
        in shows["parameter DomainName"]
    )
    assert "TurnMemory=256," in shows["parameter TurnMemory"]
    assert planned["apart"]["EndpointUrl"] == "is for emulators"
    assert "--parameter AlarmEmail=VALUE" in planned["apart"]["AlarmEmail"]
    for name in switched:
        assert f"{name}={parameters[name]['Default']}," not in shows[f"parameter {name}"], "not a switch"
    assert "the last one stops" in planned["not_shown"]["worker.yaml"]
    assert list(shows)[:7] == ["account", "build", "deploy", "smoke", "protocols", "mail2", "kill"]
    assert list(shows)[-4:] == ["rollout", "rollback", "restore", "delete"]
    assert list(shows)[-6:-4] == ["worker", "versions"]


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ("Architecture=arm64", "it needs another build"),
        ("Flavour=mint", "it is no parameter of the template"),
    ],
)
def test_what_can_t_be_switched(given: str, reason: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["aws-check", "--plan", "--parameter", given]) == 2
    assert f"can't be switched: {reason}" in capsys.readouterr().err


def test_an_unknown_step(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["aws-check", "--only", "fly"]) == 2
    assert "'fly' is no step" in capsys.readouterr().err


def test_it_asks_before_it_costs_money(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("n\n"))
    assert run(["aws-check"]) == 1
    assert "at a cost of less than $1?" in capsys.readouterr().err


def test_without_a_region_it_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("AWS_REGION", "AWS_DEFAULT_REGION", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_CONFIG_FILE", os.devnull)
    assert run(["aws-check", str(tmp_path), "--only", "account", "--yes"]) == 1
    assert "You must specify a region" in capsys.readouterr().out
