"""docs/webhooks.md: its receiver takes what is signed, once, and nothing else; its commands are run elsewhere."""

import re
import time
from http.server import HTTPServer
from threading import Thread
from typing import Any

import httpx2
import pytest
from support.processes.document_samples import DOCS

from mail.core.task.webhooks import RETRY_SECONDS
from mail.webhooks import secret_key, sign

TEXT = (DOCS / "webhooks.md").read_text(encoding="utf-8")


def test_the_receiver(capsys: pytest.CaptureFixture[str]) -> None:
    sample: dict[str, Any] = {}
    exec(TEXT.partition("```python\n")[2].partition("```")[0], sample)
    sample["Receiver"].log_message = lambda *_: None
    body, now = b'{"event": "task_complete", "task_id": "sums"}', int(time.time())
    signature = sign(secret_key(sample["SECRET"]), "an-id", now, body)
    headers = {"webhook-id": "an-id", "webhook-timestamp": str(now), "webhook-signature": signature}
    with HTTPServer(("127.0.0.1", 0), sample["Receiver"]) as server:
        thread = Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        url = f"http://127.0.0.1:{server.server_port}"
        answers = [
            httpx2.post(url, content=content, headers=headers).status_code
            for content in (body, body, body + b" ")
        ]
        server.shutdown()
        thread.join()
    assert answers == [204, 204, 401]
    assert capsys.readouterr().out == "sums task_complete\n"


def test_the_schedule() -> None:
    told = TEXT.partition("retried after ")[2].partition(" seconds, for about an hour")[0]
    numbers = [int(number) for number in re.findall(r"\d+", told)]
    assert numbers == list(RETRY_SECONDS[: len(numbers)])
    assert set(RETRY_SECONDS[len(numbers) :]) == {numbers[-1]}
    assert 3000 < sum(RETRY_SECONDS) < 4200
