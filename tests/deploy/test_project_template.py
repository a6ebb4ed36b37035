"""template.yaml of the projects that `mail init` creates, and the bundle that `mail build` makes of them."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from mail import __version__
from mail.cli.project.bundle import copy_code, copy_swarm, copy_workers
from mail.cli.project.scaffold import Project, deployment_template, requirement
from mail.local_aws.deployment import read_template

LAYERS = {
    "ApiLayer": "api",
    "ProtocolsLayer": "protocols",
    "IdentityLayer": "identity",
    "TurnLayer": "turn",
    "CodeLayer": "code",
}


@pytest.mark.soak
def test_only_code_and_layers_differ_from_ours(tmp_path: Path, template: dict[str, Any]) -> None:
    path = tmp_path / "template.yaml"
    path.write_text(deployment_template(), encoding="utf-8")
    project = read_template(path)
    assert project["Globals"]["Function"].pop("CodeUri") == ".build/swarm/"
    ours = read_template(Path(__file__).parents[2] / "template.yaml")
    ours["Globals"]["Function"].pop("CodeUri")
    for name, folder in LAYERS.items():
        assert project["Resources"][name]["Properties"].pop("ContentUri") == f".build/{folder}/"
        ours["Resources"][name]["Properties"].pop("ContentUri")
        del ours["Resources"][name]["Metadata"]
    assert project["Resources"] == ours["Resources"]
    assert project["Outputs"] == ours["Outputs"]
    assert "requirements/" not in path.read_text()


PROFILE, MODEL = "arn:aws:bedrock:*:*:inference-profile", "arn:aws:bedrock:*::foundation-model"
ARN = "arn:aws:bedrock:eu-west-1:111122223333:application-inference-profile/abc"
BEDROCK = {
    "bedrock/amazon.nova-pro-v1:0": f"{MODEL}/amazon.nova-pro-v1:0",
    "bedrock/eu-west-1/amazon.nova-pro-v1:0": f"{MODEL}/amazon.nova-pro-v1:0",
    "bedrock/eu.amazon.nova-pro-v1:0": f"{PROFILE}/eu.amazon.nova-pro-v1:0,{MODEL}/amazon.nova-pro-v1:0",
    f"bedrock/{ARN}": ARN,
}


@pytest.mark.parametrize(("model", "arns"), BEDROCK.items())
def test_a_project_with_bedrock_asks_for_no_key(model: str, arns: str, template: dict[str, Any]) -> None:
    project = Project("my-swarm", model, is_python=False)
    files = dict(project.files())
    assert f'parameter_overrides = ["BedrockModels={arns}"]' in files["samconfig.toml"]
    assert re.search(template["Parameters"]["BedrockModels"]["AllowedPattern"], arns)
    assert "mail-serverless[bedrock]" in files["requirements.txt"]
    assert "AWS_ACCESS_KEY_ID" not in str(files)
    assert "ssm put-parameter" not in files["README.md"]
    region = "eu-central-1" if model.startswith("bedrock/eu.") else "us-east-1"
    assert project.next_steps == [f"export AWS_REGION={region}", "mail server"]


def test_a_bundle_has_what_functions_read_and_no_secret(tmp_path: Path) -> None:
    folder = tmp_path / "project"
    for name, text in Project("my-swarm", "openai/gpt-5-mini", False).files():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")
    skill = ("skills/refunds/SKILL.md", "skills/refunds/tests/README.md")
    for name in (
        *(".env", "mail.db", "mail.db-wal", "venv/pyvenv.cfg", "prompts/lead.md", "registries/x.json"),
        *(*skill, "skills/README.md", "skills/refunds/.git"),
    ):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("x")
    copy_swarm(folder, tmp_path / "swarm")
    found = {
        str(path.relative_to(tmp_path / "swarm"))
        for path in (tmp_path / "swarm").rglob("*")
        if path.is_file()
    }
    assert found == {"mail.toml", "swarms.json", "my_swarm.py", "prompts/lead.md", *skill}


def test_the_code_is_the_one_that_is_installed(tmp_path: Path) -> None:
    copy_code(tmp_path)
    copy_workers(tmp_path)
    assert (tmp_path / "worker.yaml").read_bytes() == (Path(__file__).parents[2] / "worker.yaml").read_bytes()
    assert (tmp_path / "python" / "handlers" / "turn.py").exists()
    assert (tmp_path / "python" / "mail" / "__pycache__" / "errors.cpython-312.pyc").exists()
    assert (tmp_path / "run.sh").stat().st_mode & 0o111


def test_the_variable_of_a_provider_is_that_of_the_calls() -> None:
    assert Project("team", "gemini/gemini-2.5-pro", is_python=False).key == ("GEMINI_API_KEY", "")


def test_a_model_that_the_sdk_calls_is_that_of_its_provider() -> None:
    project = Project("team", "sdk/ollama/llama3.2", is_python=True)
    files = dict(project.files())
    assert project.next_steps == ["export OLLAMA_API_BASE=http://localhost:11434", "mail server"]
    assert "mail-serverless[openai]" in files["requirements.txt"]
    assert 'tool_format="completions"' in files["team.py"]
    assert "tool_format" not in dict(Project("team", "sdk/openai/gpt-5", is_python=True).files())["team.py"]


ORIGINS = [
    (None, f"mail-serverless[llm]=={__version__}"),
    ({"url": "file:///src/mail", "dir_info": {"editable": True}}, "mail-serverless[llm] @ file:///src/mail"),
    ({"url": "file:///a%20b", "dir_info": {}}, "mail-serverless[llm] @ file:///a%20b"),
    (
        {"url": "file:///w/mail_serverless-1.3.0-py3-none-any.whl", "archive_info": {}},
        "mail-serverless[llm] @ file:///w/mail_serverless-1.3.0-py3-none-any.whl",
    ),
    (
        {
            "url": "https://example.com/mail.git",
            "vcs_info": {"vcs": "git", "requested_revision": "main", "commit_id": "1a2b3c"},
            "subdirectory": "python",
        },
        "mail-serverless[llm] @ git+https://example.com/mail.git@1a2b3c#subdirectory=python",
    ),
]


@pytest.mark.parametrize(("origin", "line"), ORIGINS, ids=[line for _, line in ORIGINS])
def test_a_project_requires_mail_from_where_it_was_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, origin: dict[str, Any] | None, line: str
) -> None:
    installed = tmp_path / f"mail_serverless-{__version__}.dist-info"
    installed.mkdir()
    (installed / "METADATA").write_text(f"Name: mail-serverless\nVersion: {__version__}\n")
    if origin is not None:
        (installed / "direct_url.json").write_text(json.dumps(origin))
    monkeypatch.syspath_prepend(tmp_path)
    assert requirement("[llm]") == line
