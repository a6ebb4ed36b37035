"""The three tiers of the tests: which of them runs a test, and how much a test that can do more or less does in it.

    fast    in this process, on SQLite in memory: `scripts/dev.py test`, and pytest without a path
    full    every store, other processes, the documents, crashes at a sample of points: `--full`, what CI runs
    soak    every crash point, chaos, fuzzing by the ten thousand, the deployed shape under faults: `--soak`

A tier includes those before it. A path on the command line runs whatever its tier.
"""

import os
from typing import Literal, get_args

import pytest

Tier = Literal["fast", "full", "soak"]
TIERS: tuple[Tier, ...] = get_args(Tier)
DURATIONS: dict[Tier, str] = {"fast": "2 minutes", "full": "8 minutes", "soak": "1 hour"}
"""How long each takes on two cores."""

VARIABLE = "MAIL_TEST_TIER"
"""Holds the tier for the workers of pytest-xdist and the processes that tests start."""

TIER_OF: dict[str, Tier] = {
    "tests": "fast",
    "tests/agentmail/test_agentmail_document.py": "full",
    "tests/agentmail/test_agentmail_fuzz.py::test_a_long_body_costs_no_more_per_byte_than_a_short_one": "full",
    "tests/api/test_api_facade.py::test_a_swarm_is_served_on_its_database": "full",
    "tests/api/test_api_manual.py::test_tokens_are_counted_beside_the_event_loop": "full",
    "tests/api/test_api_names.py::test_defining_a_swarm_loads_nothing_heavy": "full",
    "tests/api/test_api_templates.py::TestServer": "full",
    "tests/aws": "full",
    "tests/bench/test_bench_peers.py::test_the_program_of_mail": "full",
    "tests/bench/test_bench_smoke.py": "soak",
    "tests/chaos": "soak",
    "tests/chaos/test_chaos_rounds.py::test_a_round_on_sqlite_is_the_same_each_time": "full",
    "tests/chaos/test_chaos_rounds.py::test_on_sqlite": "full",
    "tests/cli": "full",
    "tests/cli/test_cli_connecting.py": "fast",
    "tests/cli/test_cli_timeline.py": "fast",
    "tests/cli/test_cli_tree.py": "fast",
    "tests/client/test_client_document.py": "full",
    "tests/contract/test_contract_store_snapshots.py::TestHistoriesOfANewTask::test_all_are_there[dynamodb": "full",
    "tests/contract/test_contract_store_snapshots.py::TestHistoriesOfANewTask::test_nothing_of_a_task_that_is_there_changes[dynamodb": "full",
    "tests/contract/test_contract_store_snapshots.py::TestTurns::test_what_is_read_does_not_grow_with_the_task[dynamodb": "full",
    "tests/contract/test_contract_store_snapshots.py::TestFork": "full",
    "tests/contract/test_contract_store_snapshots.py::TestFork::test_a_fork_of_any_moment_comes_to_an_answer[sqlite-memory]": "fast",
    "tests/contract/test_contract_store_machine.py": "full",
    "tests/contract/test_contract_store_machine.py::TestMemory": "fast",
    "tests/contract/test_contract_store_machine.py::TestDynamoDB-ministack": "soak",
    "tests/crash": "full",
    "tests/crash/test_crash.py::test_the_suite_finds_bugs[misplaced checkpoints]": "soak",
    "tests/crash/test_crash.py::test_the_suite_finds_bugs[torn commits]": "soak",
    "tests/crash/test_crash_stores.py::test_the_suite_finds": "soak",
    "tests/deploy": "full",
    "tests/deploy/test_template_checks.py::test_checkov_sees_what_is_wrong": "soak",
    "tests/docs": "full",
    "tests/docs/test_learning_path.py": "soak",
    "tests/e2e": "full",
    "tests/e2e/test_federation.py::test_many_tasks_while_servers_die": "soak",
    "tests/e2e/test_federation.py::test_three_swarms_while_servers_die": "soak",
    "tests/e2e_aws": "full",
    "tests/e2e_aws/test_chaos.py": "soak",
    "tests/e2e_aws/test_faults.py": "soak",
    "tests/e2e_aws/test_flood.py": "soak",
    "tests/e2e_aws/test_takeover.py": "soak",
    "tests/examples": "full",
    "tests/examples/test_crew.py": "fast",
    "tests/examples/test_mafia_rules.py": "fast",
    "tests/exchange/test_exchange_document.py": "full",
    "tests/exchange/test_exchange_memory.py::test_a_thousand_entities_and_much_mail": "full",
    "tests/exchange/test_exchange_memory.py::test_sync_is_linear": "full",
    "tests/exchange/test_exchange_processes.py": "full",
    "tests/factories": "full",
    "tests/factories/test_factory_history.py": "fast",
    "tests/factories/test_llm_stub.py": "fast",
    "tests/handlers": "full",
    "tests/http/test_fuzz.py::test_schemathesis": "full",
    "tests/http/test_http_connections.py::TestTime": "full",
    "tests/http/test_http_responses_document.py": "full",
    "tests/http/test_http_responses_models.py": "full",
    "tests/postgres": "full",
    "tests/spec/test_examples.py::test_the_script_passes": "full",
    "tests/spec/test_generated.py": "full",
    "tests/factories/test_mcp_tools.py": "full",
    "tests/factories/test_mcp_tools.py::test_their_names": "fast",
    "tests/factories/test_mcp_tools.py::test_mistakes": "fast",
    "tests/factories/test_mcp_tools.py::test_what_a_loaded_swarm_may_not_do": "fast",
    "tests/factories/test_mcp_tools.py::test_a_dump_hides_the_settings_of_a_server": "fast",
    "tests/stdlib/test_stdlib_mcp.py": "full",
    "tests/stdlib/test_stdlib_mcp.py::test_everything[stdio]": "soak",
    "tests/stdlib/test_stdlib_swarm.py": "full",
    "tests/ui": "full",
}
"""By the beginning of a test's id: the longest one that fits decides."""

SERVERS_AND_FILES = ("ministack", "dynoxide", "dynamodb-local", "custom", "postgres", "sqlite-slow")
"""Ends of parameters that take a test of the fast tier to the full one."""

SECOND_ENGINES = ("ministack", "dynoxide", "dynamodb-local")
"""Ends of parameters with which a test does again what it does on moto: it is left to the soak tier."""

ON_MOTO = ("tests/aws/", "tests/contract/", "tests/exchange/")
NOT_ON_MOTO = (
    "tests/aws/test_sqs_publish.py::test_what_is_refused",
    "tests/exchange/test_exchange_processes.py",
)
"""What moto shows, and what it can't show, by the beginning of the ids."""

LONGEST = (
    "tests/ui/",
    "tests/crash/test_crash_stores.py",
    "tests/docs/test_documented_commands.py",
    "tests/e2e/test_server",
    "tests/exchange/test_exchange_processes.py",
    "tests/contract/test_contract_suites.py",
    "tests/contract/test_contract_store_snapshots.py",
)
"""What is started first, by the beginning of the ids, so that no process ends long after the others."""


def current() -> Tier:
    """Return the tier that runs; a single test and a path are run as in the full one."""
    return next((tier for tier in TIERS if tier == os.environ.get(VARIABLE)), "full")


def sized(*, fast: int, full: int, soak: int) -> int:
    """Return how many examples, points or rounds a test tries in the tier that runs."""
    return {"fast": fast, "full": full, "soak": soak}[current()]


def is_in(tier: Tier, item: pytest.Item) -> bool:
    """Return whether a tier runs a test."""
    return TIERS.index(tier_of(item)) <= TIERS.index(tier)


def tier_of(item: pytest.Item) -> Tier:
    """Return the lowest tier that runs a test."""
    nodeid = item.nodeid
    found = TIER_OF[max(filter(nodeid.startswith, TIER_OF), key=len)]
    if nodeid.startswith("tests/handlers/") and _has_parameter(item, ("source",)):
        return "soak"
    runs_on_moto = nodeid.startswith(ON_MOTO) and not nodeid.startswith(NOT_ON_MOTO)
    if runs_on_moto and _has_parameter(item, SECOND_ENGINES):
        return "soak"
    is_slow = _has_parameter(item, SERVERS_AND_FILES)
    is_slow |= nodeid.startswith("tests/exchange/") and _has_parameter(item, ("dynamodb-moto",))
    return "full" if found == "fast" and is_slow else found


def _has_parameter(item: pytest.Item, endings: tuple[str, ...]) -> bool:
    call = getattr(item, "callspec", None)
    values = call.params.values() if call is not None else ()
    return any(isinstance(value, str) and value.endswith(endings) for value in values)


def is_skipped_whole(tier: Tier, path: str) -> bool:
    """Return whether a tier runs nothing below a path, such as `tests/crash`, so that it needn't be read."""
    if path not in TIER_OF:
        return False
    below = [found for known, found in TIER_OF.items() if known.startswith(path)]
    return min(map(TIERS.index, below)) > TIERS.index(tier)
