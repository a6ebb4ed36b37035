"""`mail aws-check`: test a deployment in an AWS account."""

from pathlib import Path

import click

from mail.cli.local_aws import pair
from mail.cli.options import as_json, run
from mail.cli.output import Output
from mail.cli.smoke import Report

PROJECT = "mail-check"


@click.command()
@click.argument("folder", type=click.Path(path_type=Path, file_okay=False), default=PROJECT)
@click.option("--stack", default=PROJECT, metavar="NAME", help="The stack to create and delete.")
@click.option("--plan", "only_plan", is_flag=True, help="Print the steps, and do nothing.")
@click.option("--only", multiple=True, metavar="STEP", help="Run only this step, and keep the stack.")
@click.option("--parameter", multiple=True, metavar="NAME=VALUE", help="A value to switch a parameter to.")
@click.option("--keep", is_flag=True, help="Keep the stack.")
@click.option("--yes", is_flag=True, help="Don't ask before it costs money.")
@as_json
def aws_check(
    folder: Path,
    stack: str,
    only_plan: bool,
    only: tuple[str, ...],
    parameter: tuple[str, ...],
    keep: bool,
    yes: bool,
    output: Output,
) -> int:
    """Test a deployment in your AWS account, with a stack of its own.

    Deploys from nothing, switches each parameter, kills a turn, rolls out, rolls back, restores, and deletes the
    stack, also after a failure. FOLDER gets the project and a log. Exits with 1 if a step fails.
    """
    from mail.cli.aws_check_steps import NOT_SHOWN, Run, perform_all, plan

    steps, apart = plan(dict(pair(each, "--parameter") for each in parameter))
    if unknown := {*only} - {step.name for step in steps}:
        raise click.BadParameter(f"{min(unknown)!r} is no step; --plan prints them", param_hint="--only")
    steps = [step for step in steps if not only or step.name in only]
    if only_plan:
        lines = [f"{step.name:<30}{step.minutes:>3} min  {step.shows}" for step in steps]
        lines += [f"{name:<30}  without a step: it {reason}" for name, reason in apart.items()]
        lines += [f"{name:<30}  not shown: it {reason}" for name, reason in NOT_SHOWN.items()]
        rows = [{"step": step.name, "minutes": step.minutes, "shows": step.shows} for step in steps]
        found = {"steps": rows, "apart": apart, "not_shown": NOT_SHOWN}
        output.result(found, lambda: output.text("\n".join(lines)))
        return 0
    if not yes:
        minutes = sum(step.minutes for step in steps)
        question = (
            f"Use stack {stack} of your AWS account for about {minutes} minutes, at a cost of less than $1?"
        )
        click.confirm(question, abort=True, err=True)
    folder.mkdir(parents=True, exist_ok=True)
    report = Report(output)
    run(perform_all(Run(folder.resolve(), stack), steps, report.add, cleans=not only and not keep))
    return report.end(stack=stack)
