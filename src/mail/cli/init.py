"""`mail init`: a project that runs."""

import shlex
import sys
from pathlib import Path

import click

from mail.cli.options import as_json
from mail.cli.output import Output
from mail.errors import ConfigurationError

DEFAULT_MODEL = "openai/gpt-5-mini"


@click.command()
@click.argument(
    "folder",
    type=click.Path(path_type=Path),
    default=".",
    help="The project's folder; its name is the swarm's. [default: this folder]",
)
@click.option(
    "--model", metavar="MODEL", help="A language model, such as openai/gpt-5-mini or ollama/llama3.2."
)
@click.option("--no-model", is_flag=True, help="Create agents that follow rules.")
@click.option("--python", is_flag=True, help="Define the swarm in Python, not in swarms.json.")
@click.option("--force", is_flag=True, help="Accept a model that is not known.")
@as_json
def init(folder: Path, model: str | None, no_model: bool, python: bool, force: bool, output: Output) -> None:
    """Create a project with a swarm of your own.

    It has a swarm, its configuration, a test, a template for AWS, and instructions for coding agents. No file is ever
    overwritten.
    """
    from mail.cli.project.scaffold import Project
    from mail.core.protocol.error_text import distribution_of
    from mail.factories.ports import is_installed, way_to

    if model is not None and (no_model or not model.strip()):
        raise click.BadParameter("give either --model MODEL or --no-model")
    is_terminal = sys.stdin.isatty() and sys.stdout.isatty()
    if model is None and not no_model and is_terminal:
        answer = click.prompt(
            f"Language model, such as {DEFAULT_MODEL} or ollama/llama3.2 (- for none)", default=DEFAULT_MODEL
        )
        model = None if answer.strip() == "-" else answer.strip()
    project = Project(folder.resolve().name, model, python)
    contents = dict(project.files())
    if existing := [name for name in contents if (folder / name).exists()]:
        raise ConfigurationError(f"{folder} already has {', '.join(existing)}; nothing was written")
    package = None if model is None else way_to(model).package
    is_missing = package is not None and not is_installed(package)
    if model is not None and not force and not is_missing:
        _question(model, is_terminal=is_terminal)
    try:
        for name, text in contents.items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("x", encoding="utf-8") as file:
                file.write(text)
    except OSError as error:
        raise ConfigurationError(f"{folder}: can't be written: {error.strerror}") from error
    steps = project.next_steps
    if folder.resolve() != Path.cwd():
        steps = [f"cd {shlex.quote(str(folder))}", *steps]
    if is_missing:
        install = f"pip install {distribution_of(package or '')}"
        steps[0] = f"{steps[0]} && {install}" if steps[0].startswith("cd ") else f"{install} && {steps[0]}"
    where = folder if folder.name == project.name else folder.resolve()
    output.result(
        {
            "folder": str(folder),
            "swarm": project.name,
            "model": model,
            "files": sorted(contents),
            "next": steps,
        },
        lambda: output.text(
            "\n".join([f"Created {project.name} in {where}. Next:", *(f"  {step}" for step in steps)])
        ),
    )


def _question(model: str, *, is_terminal: bool) -> None:
    """Ask on a terminal whether to use a model that is not known. Raises ConfigurationError elsewhere."""
    from mail.factories.ports import find_problems

    problems = find_problems(model, has_key=True)
    if not problems:
        return
    if not is_terminal:
        raise ConfigurationError(f"{problems[0]} Nothing was written; --force uses the name as it is.")
    click.confirm(f"{problems[0]} Use {model!r} anyway?", abort=True)
