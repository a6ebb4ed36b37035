"""`mail inbox`: mail of MAIL 2.0 with the API key of its owner, and without another client."""

import json
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import httpx2
import pytest
from support.processes.server import ServerProcess, run_mail
from support.processes.terminal import Terminal

ME = "user:user@localhost"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    with ServerProcess(tmp_path_factory.mktemp("inbox")) as server:
        yield server


@pytest.fixture
def mail(server: ServerProcess) -> Any:
    """What a command about the inbox prints."""
    return partial(server.prints, "inbox")


def rows(text: str) -> list[list[str]]:
    """The cells of a table, without the times."""
    cells = [line.split("\t") for line in text.splitlines()[1:]]
    return [[*each[:2], *each[3:]] for each in cells]


def test_mail_is_written_read_answered_and_thrown_away(
    mail: Any, server: ServerProcess, tmp_path: Path
) -> None:
    admin = "admin:admin@localhost"
    sent = mail(
        "compose", admin, ME, "--subject", "Tea", "--body", "At four?\nOr five?", "--tag", "tea"
    ).strip()
    assert rows(mail("list", "--unread")) == [[sent, "unread", ME, "tea", "Tea"]]
    shown = mail("open", sent, role="admin").splitlines()
    assert shown[:2] == [f"sender      {ME}", f"recipients  {admin}, {ME}"]
    assert shown[-2:] == ["At four?", "Or five?"]
    answer = json.loads(mail("reply", sent, "Five.", "--tag", "yes", "--json", role="admin"))
    assert (answer["subject"], answer["recipients"], answer["reply_to"]) == ("Re: Tea", [ME], sent)
    again = mail("reply", answer["message_id"], "Fine.").strip()
    assert rows(mail("list", role="admin"))[0] == [again, "unread", ME, "-", "Re: Tea"]
    listed = json.loads(mail("list", "--thread", sent, "--json"))
    assert [each["subject"] for each in listed["entries"]] == ["Re: Tea", "Tea"]
    assert rows(mail("list", "--tag", "yes")) == [[answer["message_id"], "-", admin, "yes", "Re: Tea"]]
    assert mail("trash", sent) == f"{sent} is in the trash\n"
    assert [each[0] for each in rows(mail("list", "--limit", "1"))] == [answer["message_id"]]
    assert rows(mail("list", "--offset", "1")) == []
    with Terminal("inbox", "list", "--limit", "1", cwd=tmp_path, env=server.caller()) as terminal:
        terminal.expect("Re: Tea")
        assert terminal.end() == 0


def test_what_the_server_refuses(mail: Any) -> None:
    mail("open", "none", fails="there is no 'none' in this box")


def test_addresses_without_a_host_are_those_of_the_server(mail: Any) -> None:
    """What is none leaves no draft, nor does a message that the server refuses."""
    content = ("--subject", "Short", "--body", "x")
    given = ("user", "admin:admin", "user@localhost", "team@x", "list:a@b", "eve@x@beta")
    sent = json.loads(mail("compose", *given, *content, "--json"))
    full = ["admin:admin@localhost", "eve@x@beta", "list:a@b@localhost", "team@x@localhost", ME]
    assert sorted(set(sent["recipients"])) == full


@pytest.mark.parametrize("way", ["mail token create", "POST /tokens"])
def test_mail_reaches_who_has_a_token_and_has_not_used_it(mail: Any, server: ServerProcess, way: str) -> None:
    if way == "POST /tokens":
        admin = {"Authorization": f"Bearer {server.tokens['admin']}"}
        answer = httpx2.post(f"{server.url}/tokens", headers=admin, json={"role": "user", "id": "bob"})
        name, token = "bob", answer.json()["token"]
    else:
        made = run_mail("token", "create", "--role", "user", "--id", "ann", cwd=server.folder)
        name, token = "ann", made.stdout.strip()
    sent = mail("compose", name, "--subject", "Welcome", "--body", "x", role="admin").strip()
    listed = server.mail("inbox", "list", MAIL_API_KEY=token)
    assert rows(listed.stdout) == [[sent, "unread", "admin:admin@localhost", "-", "Welcome"]]


def test_what_is_refused_leaves_no_draft(server: ServerProcess) -> None:
    content = ("--subject", "Short", "--body", "x")
    wrong = server.mail("inbox", "compose", "Ann Lee", *content)
    assert (wrong.returncode, "lower-case letters" in wrong.stderr) == (2, True)
    many = [f"user:u{number}@localhost" for number in range(1001)]
    assert server.mail("inbox", "compose", *many, *content).returncode == 1
    headers = {"Authorization": f"Bearer {server.tokens['user']}"}
    assert httpx2.get(f"{server.url}/v2/drafts", headers=headers).json()["entries"] == []


def test_who_is_on_hold_can_write(mail: Any, server: ServerProcess) -> None:
    """Their drafts stay."""
    held = server.mail("caller", "hold", "user:user", "case 4711", role="admin")
    assert held.returncode == 0, held.stderr
    sent = mail("compose", ME, "--subject", "Held", "--body", "Still here.").strip()
    assert rows(mail("list", "--limit", "1"))[0][0] == sent
