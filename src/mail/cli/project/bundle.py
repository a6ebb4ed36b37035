"""The bundle of a project, which `sam deploy` uploads: the swarm, MAIL, and the packages of both."""

import re
import shutil
import sys
import tempfile
from collections.abc import Collection
from importlib.metadata import PackageNotFoundError, distributions, requires
from pathlib import Path

import mail
from mail.cli.project import layers
from mail.core.task.skills import MAIN_FILE
from mail.errors import ConfigurationError, MAILError
from mail.local_aws.processes import handlers_folder

TARGET = Path(".build")
DISTRIBUTION = "mail-serverless"
NO_FUNCTION = {"awslambdaric", "click", "prompt-toolkit", "python-dotenv", "pyyaml", "rich"}
"""What no function imports, or what Lambda brings: of the command line, and the runtime client."""

ONLY_API = {"fastapi", "sse-starlette", "uvicorn"}
"""What no turn imports; turns need the room for language models."""

EXTRAS = {"api": (), "protocols": ("a2a", "agui", "mcp"), "turn": (), "identity": ("oidc",)}
"""From each layer to its extras, besides those of all functions."""

LEFT_OUT = (
    "__pycache__",
    "*.pyc",
    "*.db*",
    "test_*",
    "tests",
    "registries",
    "logs",
    "node_modules",
    "AGENTS.md",
    "README*",
)
"""Patterns of what no function reads; nor does it read hidden files, virtual environments and what deploys it."""

DEPLOYMENT = {"requirements.txt", "samconfig.toml", "template.yaml"}


def make_bundle(architecture: str) -> dict[str, int]:
    """Fill `.build` for the project in the current folder; return the bytes of each part.

    Raises ConfigurationError if there is no project or this Python can't do it, MAILError if pip fails.
    """
    requirements = Path("requirements.txt")
    if not requirements.is_file() or not Path("template.yaml").is_file():
        raise ConfigurationError("this folder has no project: run mail init, or change to its folder")
    if sys.version_info[:2] != layers.RUNTIME:
        version = ".".join(map(str, layers.RUNTIME))
        raise ConfigurationError(f"the functions run on Python {version}: run mail build with that")
    if TARGET.exists():
        shutil.rmtree(TARGET)
    copy_swarm(Path(), TARGET / "swarm")
    machine = layers.MACHINES[architecture]
    try:
        copy_code(TARGET / "code")
        for name in EXTRAS:
            install(name, TARGET / name / "python", requirements, machine)
    except layers.BuildError as error:
        raise MAILError(str(error)) from error
    sizes = {each.name: layers.size_of(each) for each in sorted(TARGET.iterdir())}
    copy_workers(TARGET)
    return sizes


def copy_workers(target: Path) -> None:
    """Copy the template of workers, which is deployed as it is."""
    shutil.copyfile(Path(__file__).with_name("worker.yaml"), target / "worker.yaml")


def copy_swarm(project: Path, target: Path) -> None:
    """Copy the configuration, the swarm and its modules, which functions find in their current folder."""
    patterns, of_skills = shutil.ignore_patterns(*LEFT_OUT), shutil.ignore_patterns("__pycache__")

    def ignored(folder: str, names: list[str]) -> set[str]:
        hidden = {
            name for name in names if name.startswith(".") or (Path(folder) / name / "pyvenv.cfg").exists()
        }
        own = DEPLOYMENT if Path(folder) == project else set()
        above = Path(folder).relative_to(project)
        is_skill = any((project / each / MAIN_FILE).is_file() for each in (above, *above.parents)[:-1])
        return hidden | own | (of_skills if is_skill else patterns)(folder, names)

    shutil.copytree(project, target, ignore=ignored)


def copy_code(layer: Path) -> None:
    """Copy MAIL as it is installed here, and the script that starts the streaming function."""
    ignored = shutil.ignore_patterns("__pycache__", "deployed")
    for source in (Path(mail.__file__).parent, handlers_folder() / "handlers"):
        shutil.copytree(source, layer / "python" / source.name, ignore=ignored)
    script = layer / "run.sh"
    shutil.copy(Path(layers.__file__).with_name("run.sh"), script)
    script.chmod(0o755)
    layers.compile_modules(sys.executable, layer / "python")


def install(layer: str, target: Path, requirements: Path, machine: str) -> None:
    """Install what MAIL and the project require in a layer, in the versions that are installed here, if they are.

    `identity` has its extra only, as it comes on top of another layer. Raises BuildError.
    """
    for_turns, is_whole = layer == "turn", layer != "identity"
    extras, own = {*EXTRAS[layer], *(("aws", "otel") if is_whole else ())}, []
    for line in requirements.read_text(encoding="utf-8").splitlines():
        if named := re.match(rf"\s*{DISTRIBUTION}\s*(?:\[([^]]*)])?", line):
            extras |= {each.strip() for each in (named[1] or "").split(",") if for_turns}
        elif is_whole and re.match(r"\s*[^#\s]", line):
            own.append(line)
    with tempfile.TemporaryDirectory() as folder:
        versions, packages = Path(folder) / "versions.txt", Path(folder) / "packages.txt"
        pins = {
            each.name: each.version for each in distributions() if each.name not in (DISTRIBUTION, "mail")
        }
        versions.write_text(
            "".join(f"{name}=={version}\n" for name, version in pins.items()), encoding="utf-8"
        )
        packages.write_text(
            "\n".join(_required(extras, NO_FUNCTION | (ONLY_API if for_turns else set()), is_whole) + own),
            encoding="utf-8",
        )
        options = ["--constraint", str(versions), "--requirement", str(packages)]
        layers.run_pip(sys.executable, options, machine, target, Path())
    layers.prune(target, requirements)
    layers.compile_modules(sys.executable, target)


def _required(extras: Collection[str], left_out: Collection[str], is_whole: bool) -> list[str]:
    """Return the requirements of extras, if `is_whole` with MAIL's own, without the packages `left_out`."""
    try:
        declared = requires(DISTRIBUTION) or []
    except PackageNotFoundError:
        raise ConfigurationError(f"install the package {DISTRIBUTION} first") from None
    found = []
    for line in declared:
        requirement, _, marker = line.partition(";")
        extra = re.search(r"extra == ['\"](\w+)['\"]", marker)
        name = re.match(r"[\w.-]+", requirement)
        if (is_whole if extra is None else extra[1] in extras) and name and name[0] not in left_out:
            found.append(requirement.strip())
    return found
