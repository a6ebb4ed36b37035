"""A swarm whose agents have MAIL 2.0 addresses and members outside, and what people and those members do."""

from collections.abc import Sequence
from typing import Any

from mail.core.task.approvals import Approval
from mail.core.task.swarm import ActionCore
from mail.core.task.task import Task
from mail.testing.agents import Call, View, build_agent, build_swarm, call, complete, request, wait
from support.mail2 import HOST, Person, Stage
from support.processes.http_server import eventually

DESK, HELPER = f"desk@example@{HOST}", f"helper@example@{HOST}"
MEMBERS = {"claude": f"claude@team@{HOST}", "bob": f"user:bob@{HOST}", "review": f"list:tea@team@{HOST}"}


def play(view: View) -> Sequence[Call]:
    """Do what the first word of the last message says."""
    what, _, rest = view.mail.body.partition(" ")
    if view.mail.subject.startswith("::"):
        return [complete(f"{view.mail.subject} {view.mail.body}")]
    match what:
        case "ask":
            return [*(request(each, body=f"What of {each}?") for each in rest.split()), wait()]
        case "question":
            return [call("form", question="Which?")]
        case "pay":
            decided = [each for each in view.results if "paid" in each or "rejected" in each]
            return [complete(decided[-1]) if decided else call("pay", amount=3)]
        case "both":
            return [call("pay", amount=3), call("form", question="Which?")]
        case "twice":
            paid = sum("paid" in each for each in view.results)
            return [complete("paid twice") if paid == 2 else call("pay", amount=3 + paid)]
        case "refund":
            return [call("refund", amount=3)]
        case "wait":
            return [request("helper", body="sleep"), wait()]
    answers = [each.body for each in view.messages if each.is_from_agent and each.sender in MEMBERS]
    open_asks = sum(len(each.body.split()) - 1 for each in view.messages if each.body.startswith("ask "))
    if len(answers) < open_asks:
        return [wait()]
    return [complete(" and ".join(answers) or f"{view.mail.sender} said {view.mail.body}")]


async def pay(arguments: dict[str, Any]) -> str:
    return f"paid {arguments['amount']}"


def swarm() -> Any:
    amount = {"type": "object", "properties": {"amount": {"type": "integer"}}}
    question = {"type": "object", "properties": {"question": {"type": "string"}}}
    actions = {
        "pay": ActionCore("pay", pay, parameters=amount, needs_approval=True),
        "refund": ActionCore(
            "refund", pay, parameters=amount, needs_approval=True, reviewers=Approval(by=("admin",))
        ),
        "form": ActionCore("form", pay, parameters=question),
    }
    desk = build_agent(
        play, targets=["helper", *MEMBERS], actions=["pay", "refund", "form"], supervises=True, name="desk"
    )
    helper = build_agent(lambda _: [wait()], targets=["desk"], name="helper")
    return build_swarm(
        {"desk": desk, "helper": helper},
        actions=actions,
        breakpoint_tools=frozenset({"form"}),
        members=MEMBERS,
    )


async def make_claude(stage: Stage) -> Person:
    """Make the agent that runs elsewhere."""
    root = await stage.person("root", "admin")
    new = {"agent_name": "claude", "swarm_name": "team", "agent_password": "secret"}
    assert (await root.post("/admin/agents", new)).status_code == 200
    return await stage.log_in(MEMBERS["claude"], "secret")


async def got(person: Person, count: int = 1) -> dict[str, Any]:
    """The last message of somebody, once so many have come."""

    async def has_come() -> bool:
        return len(await person.box("inbox")) >= count

    await eventually(has_come)
    entries = await person.box("inbox", order="asc")
    assert len(entries) == count, [entry["subject"] for entry in entries]
    return await opened(person, entries[-1])


async def tasks_of(stage: Stage, owner: str) -> list[Task]:
    return (await stage.server.rig.store.list_tasks(f"{owner}@example")).tasks


async def reply(person: Person, message: dict[str, Any], body: str, *tags: str) -> dict[str, Any]:
    """A reply to the sender of a message."""
    subject = f"Re: {message['subject'].removeprefix('Re: ')}"
    fields = {"reply_to": message["message_id"], "tags": list(tags)}
    return await person.send(message["sender"], subject=subject, body=body, **fields)


async def is_delivered(person: Person) -> bool:
    """Whether the last message that somebody has sent was delivered."""
    (entry, *_) = await person.box("outbox")
    return entry["delivered_at"] is not None


async def body_of(person: Person, entry: dict[str, Any]) -> str:
    return str((await opened(person, entry))["body"])


async def opened(person: Person, entry: dict[str, Any]) -> dict[str, Any]:
    """The message of an entry of the inbox; the request is repeated once if the process dies."""
    path = f"/inbox/{entry['message_id']}"
    answer = await person.get(path)
    if answer.status_code == 503:
        answer = await person.get(path)
    message: dict[str, Any] = answer.json()["entry"]["message"]
    return message
