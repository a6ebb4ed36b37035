"""What `mail local-aws` does in Lambda's place, checked on functions that show how they were run."""

import json
import os
import signal
from base64 import b64decode
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import boto3
import httpx2
import pytest
from aws_toys import make_toys
from support.engines.aws import aws_environment
from support.processes.local_aws import LocalAwsProcess, needs_ministack
from support.processes.server import eventually, run_mail

pytestmark = [needs_ministack, pytest.mark.timeout(120)]

Note = dict[str, Any]


class Toys:
    """The toys, deployed."""

    def __init__(self, process: LocalAwsProcess, log: Path) -> None:
        self.process = process
        self._log = log
        variables = aws_environment(process.endpoint)
        self._sqs = boto3.client(
            "sqs",
            endpoint_url=process.endpoint,
            region_name=variables["AWS_REGION"],
            aws_access_key_id=variables["AWS_ACCESS_KEY_ID"],
            aws_secret_access_key=variables["AWS_SECRET_ACCESS_KEY"],
        )
        self._queues = {
            name: self._sqs.get_queue_url(QueueName=f"{name}.fifo")["QueueUrl"] for name in ("work", "calm")
        }

    def send(self, group: str, name: str, *, queue: str = "work", **order: Any) -> None:
        """Send to a queue: what was received from "calm" stays hidden for longer than any test."""
        self._sqs.send_message(
            QueueUrl=self._queues[queue],
            MessageBody=json.dumps({"name": name, **order}),
            MessageGroupId=group,
            MessageDeduplicationId=name,
        )

    def notes(self, *names: str) -> list[Note]:
        """What was noted about these messages."""
        lines = self._log.read_text().splitlines() if self._log.exists() else []
        return [note for line in lines if (note := json.loads(line))["name"] in names]

    def wait_for(self, event: str, *names: str) -> list[Note]:
        """What was noted, once there is such a note about each of them."""

        def there() -> bool:
            return set(names) <= {note["name"] for note in self.notes(*names) if note["event"] == event}

        eventually(there, f"{event} of {', '.join(names)}")
        return self.notes(*names)

    def request(self, method: str, path: str, **arguments: Any) -> httpx2.Response:
        return httpx2.request(method, self.process.url + path, timeout=60, **arguments)


@pytest.fixture(scope="module")
def toys(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Toys]:
    folder = tmp_path_factory.mktemp("toys")
    with LocalAwsProcess(folder, "--parameter", "Greeting=ahoy", template=make_toys(folder)) as process:
        made = Toys(process, folder / "log.jsonl")
        made.send("first", "first")  # a message that waits for a cold start is given again at once
        made.wait_for("end", "first")
        yield made


class TestQueues:
    @pytest.mark.soak
    def test_messages_of_a_group_keep_their_order_and_others_do_not_wait_for_them(self, toys: Toys) -> None:
        names = [f"{group}{n}" for n in range(3) for group in "abc"]
        for name in names:
            toys.send(name[0], name, queue="calm", sleep=0.3)
        notes = toys.wait_for("end", *names)
        for group in "abc":
            mine = dict.fromkeys((note["event"], note["name"]) for note in notes if note["group"] == group)
            assert list(mine) == [(event, f"{group}{n}") for n in range(3) for event in ("begin", "end")]
        assert len({note["pid"] for note in notes}) > 1
        order = sorted(notes, key=lambda note: float(note["at"]))
        assert any(
            earlier["event"] == later["event"] == "begin" and earlier["group"] != later["group"]
            for earlier, later in pairwise(order)
        )

    @pytest.mark.soak(on=("fails", "dies"))
    @pytest.mark.parametrize("failure", ["fails", "raises", "dies"])
    def test_what_was_not_handled_comes_again_before_what_is_behind_it(
        self, toys: Toys, failure: str
    ) -> None:
        first, second = f"{failure} once", f"after {failure}"
        toys.send(failure, first, **{failure: [1]})
        toys.send(failure, second)
        notes = toys.wait_for("end", first, second)
        begun = [(note["name"], note["receives"]) for note in notes if note["event"] == "begin"]
        assert begun == [(first, 1), (first, 2), (second, 1)]
        assert notes[1]["at"] - notes[0]["at"] > 1, "it came before its visibility had ended"

    @pytest.mark.soak
    def test_what_takes_too_long_is_ended(self, toys: Toys) -> None:
        toys.send("slow", "slow", sleep=5)
        notes = toys.wait_for("buried", "slow")
        assert [note["event"] for note in notes] == ["begin", "begin", "buried"]
        assert notes[0]["pid"] != notes[1]["pid"]

    @pytest.mark.soak
    def test_what_is_never_handled_becomes_a_dead_letter(self, toys: Toys) -> None:
        toys.send("bad", "bad", fails=[1, 2])
        toys.send("bad", "good")
        toys.wait_for("buried", "bad")
        toys.wait_for("end", "good")

    def test_a_duplicate_is_dropped(self, toys: Toys) -> None:
        for _ in range(3):
            toys.send("same", "same")
        toys.send("same", "last")
        notes = toys.wait_for("end", "last", "same")
        assert [note["name"] for note in notes if note["event"] == "begin"] == ["same", "last"]


class TestHttp:
    def test_a_request_is_an_event(self, toys: Toys) -> None:
        response = toys.request(
            "PUT",
            "/echo?a=1&b=x%20y&a=2&c",
            content='{"ü": 1}'.encode(),
            headers=[
                ("Content-Type", "application/json"),
                ("X-Two", "1"),
                ("X-Two", "2"),
                ("Cookie", "k=v; l=w"),
            ],
        )
        event, context = response.json()["event"], response.json()["context"]
        http = event["requestContext"]["http"]
        assert (event["version"], event["routeKey"], event["rawPath"]) == ("2.0", "ANY /echo", "/echo")
        assert (http["method"], http["path"], http["sourceIp"]) == ("PUT", "/echo", "127.0.0.1")
        assert event["rawQueryString"] == "a=1&b=x%20y&a=2&c"
        assert event["queryStringParameters"] == {"a": "1,2", "b": "x y", "c": ""}
        assert event["headers"]["x-two"] == "1,2"
        assert event["cookies"] == ["k=v", "l=w"]
        assert (event["body"], event["isBase64Encoded"]) == ('{"ü": 1}', False)
        assert "pathParameters" not in event
        assert 1000 < context["remaining"] <= 2000
        assert context["name"] in context["arn"]
        assert context["greeting"] == "ahoy"
        assert Path(context["folder"]).name == "code"

    def test_other_bodies_travel_in_base64(self, toys: Toys) -> None:
        event = toys.request("POST", "/echo", content=b"\xff\x00").json()["event"]
        assert event["isBase64Encoded"]
        assert b64decode(event["body"]) == b"\xff\x00"

    def test_parts_of_a_path_are_parameters(self, toys: Toys) -> None:
        named = toys.request("GET", "/echo/ann%20b").json()["event"]
        deep = toys.request("GET", "/deep/a/b").json()["event"]
        assert (named["routeKey"], named["pathParameters"]) == ("GET /echo/{name}", {"name": "ann b"})
        assert (deep["routeKey"], deep["pathParameters"]) == ("GET /deep/{path+}", {"path": "a/b"})

    def test_a_process_is_kept_for_the_next_request(self, toys: Toys) -> None:
        pids = {toys.request("GET", "/echo").json()["context"]["pid"] for _ in range(3)}
        assert len(pids) == 1

    def test_an_answer_is_a_response(self, toys: Toys) -> None:
        answer = {
            "statusCode": 418,
            "headers": {"X-Kind": "pot", "Content-Type": "text/plain"},
            "cookies": ["a=1", "b=2"],
            "body": "dGVh",
            "isBase64Encoded": True,
        }
        response = toys.request("POST", "/answer", json={"answer": answer})
        assert (response.status_code, response.text, response.headers["x-kind"]) == (418, "tea", "pot")
        assert response.headers.get_list("set-cookie") == ["a=1", "b=2"]
        assert toys.request("POST", "/answer", json={"answer": {"plain": 1}}).json() == {"plain": 1}

    @pytest.mark.parametrize(
        ("method", "path", "body", "status"),
        [
            ("GET", "/nothing", None, 404),
            ("GET", "/answer", None, 404),
            ("POST", "/answer", {"raise": True}, 500),
            ("POST", "/answer", {"sleep": 5}, 500),
            ("POST", "/answer", {"answer": {"statusCode": "x"}}, 500),
            ("GET", "/broken", None, 500),
        ],
    )
    def test_what_fails_is_answered_like_api_gateway_does(
        self, toys: Toys, method: str, path: str, body: Any, status: int
    ) -> None:
        for _ in range(2):  # what happened before does no harm
            response = toys.request(method, path, json=body)
            assert response.status_code == status
            assert set(response.json()) == {"message"}


class TestCommand:
    @pytest.mark.parametrize("how", [signal.SIGINT, pytest.param(signal.SIGKILL, marks=pytest.mark.soak)])
    def test_nothing_outlives_it(self, tmp_path: Path, how: signal.Signals) -> None:
        process = LocalAwsProcess(tmp_path, template=make_toys(tmp_path))
        with process:
            worker = httpx2.get(f"{process.url}/echo", timeout=60).json()["context"]["pid"]
            code = process.stop(how)
        assert code == (-how if how is signal.SIGKILL else 0), process.errors
        for what, gone in {
            "the worker ends": lambda: not is_running(worker),
            "ministack ends": lambda: not answers(process.endpoint),
        }.items():
            eventually(gone, what)

    @pytest.mark.parametrize(
        ("flags", "complaint"),
        [
            (["--template", "nowhere.yaml"], "nowhere.yaml can't be read"),
            (["--parameter", "Greeting"], "NAME=VALUE"),
            (["--parameter", "Typo=1"], "no parameter Typo"),
            (["--env", "NOT_SET_ANYWHERE"], "NOT_SET_ANYWHERE"),
            (["--built"], "can't be read"),
        ],
    )
    def test_mistakes_are_told(self, tmp_path: Path, flags: list[str], complaint: str) -> None:
        make_toys(tmp_path)
        done = run_mail("local-aws", *flags, cwd=tmp_path)
        assert done.returncode == 2
        assert complaint in done.stderr

    def test_a_missing_ministack_is_told(self, tmp_path: Path) -> None:
        make_toys(tmp_path)
        done = run_mail("local-aws", cwd=tmp_path, env={"MAIL_MINISTACK": str(tmp_path / "nothing")})
        assert done.returncode == 2
        assert "pip install ministack" in done.stderr


def is_running(pid: int) -> bool:
    """Whether there is such a process, and it isn't merely waiting for its parent to take notice."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    state = Path(f"/proc/{pid}/stat")
    return not state.exists() or state.read_text().rpartition(")")[2].split()[0] != "Z"


def answers(url: str) -> bool:
    try:
        httpx2.get(url, timeout=2)
    except httpx2.HTTPError:
        return False
    return True
