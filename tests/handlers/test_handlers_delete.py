"""The deletion of a caller on AWS: asked for by one function, done by the sweeper, each with the rights of its role."""

import json
from typing import Any

from function_stage import Stage

ZOE = "user:zoe@example-no-proxy"


def admin_request(stage: Stage, method: str, path: str, **given: Any) -> dict[str, Any]:
    key = stage.key("admin", "root")
    return stage.request("tasks", method=method, path=path, key=key, **given)


def test_everything_of_a_caller_is_deleted_unless_it_is_on_hold(stage: Stage) -> None:
    key = stage.key("user", "zoe")
    headers = {"idempotency-key": "once", "prefer": "respond-async"}
    message = stage.request("message", body={"body": "hi", "task_id": "zoe-1"}, key=key, **headers)
    assert stage.invoke("message", message)["statusCode"] == 202
    hook = stage.ask("tasks", path="/webhooks", body={"url": "https://a.example/zoe"}, key=key)
    assert hook["statusCode"] == 201
    hold = admin_request(
        stage, "POST", "/holds", body={"caller": "user:zoe", "task_id": "zoe-1", "reason": "x"}
    )
    assert stage.invoke("tasks", hold)["statusCode"] == 201
    refused = stage.invoke("tasks", admin_request(stage, "DELETE", "/callers/user:zoe"))
    assert refused["statusCode"] == 409
    lift = admin_request(stage, "DELETE", "/holds", query="caller=user:zoe&task_id=zoe-1")
    assert stage.invoke("tasks", lift)["statusCode"] == 200
    assert stage.invoke("tasks", admin_request(stage, "DELETE", "/callers/user:zoe"))["statusCode"] == 202
    stage.invoke("sweeper", stage.event("sweeper"))
    answer = stage.invoke("tasks", admin_request(stage, "GET", "/callers/user:zoe"))
    state = json.loads(answer["body"])["deletion"]
    assert (state["tasks"], state["left"], state["problem"]) == (1, 0, "")
    assert state["ended"] is not None
    left = {(item["PK"]["S"], item["SK"]["S"][:5]) for item in stage.table.items() if "zoe" in repr(item)}
    assert {place for place, _ in left} <= {
        *("CALLER_DELETION", "AUDIT"),
        f"DELETED#{ZOE}#zoe-1",
    }
    stage.work_off()
