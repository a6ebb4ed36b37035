"""Tasks by MAIL 2.0: mail to agents begins and continues them, and their agents ask people and agents outside."""

from collections.abc import AsyncIterator, Sequence
from dataclasses import replace

import pytest
from support.engines.adapters import SQLiteAdapter
from support.mail2 import HOST, NEW_LIST, Person, Stage
from support.mail2_tasks import (
    DESK,
    HELPER,
    MEMBERS,
    body_of,
    got,
    is_delivered,
    make_claude,
    play,
    reply,
    swarm,
    tasks_of,
)
from support.processes.http_server import eventually

from mail.core.decisions.approvals import GivenApproval
from mail.core.decisions.submit import Submission
from mail.core.protocol.address import Principal
from mail.core.task.documents import IN_MEMORY
from mail.core.task.task import TaskKey, TaskStatus
from mail.core.task.webhooks import Reply
from mail.errors import TaskBusy
from mail.mail2.records import MESSAGES, Message
from mail.net.webhooks import HTTPWebhooks
from mail.testing.agents import Call, View, build_agent, build_swarm, call, complete, request, wait
from mail.testing.clock import FakeClock


@pytest.fixture
async def stage(cheap_passwords: None) -> AsyncIterator[Stage]:
    adapter = SQLiteAdapter(IN_MEMORY)
    await adapter.open()
    async with Stage(adapter.rows, swarm(), adapter.store) as stage:
        yield stage
    await adapter.close()


@pytest.fixture
async def ann(stage: Stage) -> Person:
    return await stage.person("ann")


@pytest.fixture
async def bob(stage: Stage) -> Person:
    return await stage.person("bob")


@pytest.fixture
async def claude(stage: Stage) -> Person:
    return await make_claude(stage)


# ---------------------------------------------------------------------------------------------------- mail to agents


async def test_mail_to_an_agent_begins_a_task_and_replies_continue_it(stage: Stage, ann: Person) -> None:
    sent = await ann.send(DESK, subject="Tea", body="hello")
    answer = await got(ann)
    assert (answer["sender"], answer["recipients"], answer["subject"]) == (DESK, [ann.address], "Re: Tea")
    assert (answer["reply_to"], answer["tags"], answer["body"]) == (
        sent["message_id"],
        ["answer"],
        "ann said hello",
    )
    assert await is_delivered(ann)
    await reply(ann, answer, "again")
    again = await got(ann, 2)
    assert (again["subject"], again["body"]) == ("Re: Tea", "ann said again")
    (task,) = await tasks_of(stage, "user:ann")
    assert task.generation.number == 2
    for box, message in (("inbox", again), ("outbox", sent)):
        opened = (await ann.get(f"/{box}/{message['message_id']}")).json()["entry"]
        assert (opened["tasks"], opened["thread"]) == ([task.task_id], sent["message_id"])
    await ann.send(DESK, subject="Tea", body="a new one")
    await got(ann, 3)
    assert len(await tasks_of(stage, "user:ann")) == 2


async def test_a_task_belongs_to_a_thread_an_agent_and_a_sender(
    stage: Stage, ann: Person, bob: Person
) -> None:
    first = await ann.send(DESK, bob.address, body="hello")
    await got(ann)
    await bob.send(DESK, ann.address, body="me too", reply_to=first["message_id"])
    assert (await got(bob, 2))["body"] == "bob said me too"
    (of_ann,), (of_bob,) = await tasks_of(stage, "user:ann"), await tasks_of(stage, "user:bob")
    assert of_ann.task_id != of_bob.task_id
    mine = await got(ann, 2)
    await ann.send(DESK, body="and I", reply_to=mine["message_id"])
    await got(ann, 3)
    assert [task.generation.number for task in await tasks_of(stage, "user:ann")] == [2]


async def test_who_has_not_got_a_message_does_not_join_its_thread(
    stage: Stage, ann: Person, bob: Person
) -> None:
    sent = await ann.send(DESK, body="hello")
    await got(ann)
    await bob.send(DESK, body="let me in", reply_to=sent["message_id"])
    await got(bob)
    (task,) = await tasks_of(stage, "user:bob")
    await bob.send(DESK, body="once more", reply_to=(await bob.box("outbox"))[0]["message_id"])
    await got(bob, 2)
    assert [each.task_id for each in await tasks_of(stage, "user:bob")] == [task.task_id]


async def test_a_reply_answers_the_question_of_a_task(stage: Stage, ann: Person) -> None:
    await ann.send(DESK, body="question")
    asked = await got(ann)
    assert (asked["tags"], asked["body"]) == (["question"], "desk asks: Which?")
    await reply(ann, asked, "the green one")
    assert (await got(ann, 2))["tags"] == ["answer"]
    (task,) = await tasks_of(stage, "user:ann")
    assert (task.status, task.generation.run) == (TaskStatus.COMPLETED, 1)


@pytest.mark.parametrize(("tag", "text"), [("approve", "paid 3"), ("reject", "rejected")])
async def test_an_approval_needs_its_tag(stage: Stage, ann: Person, tag: str, text: str) -> None:
    await ann.send(DESK, body="pay")
    asked = await got(ann)
    assert asked["tags"] == ["approval"]
    assert asked["body"].startswith(
        "desk wants to run pay(amount: 3)\n\nReply with the tag approve or reject"
    )
    await reply(ann, asked, "yes, please")
    notice = await got(ann, 2)
    assert notice["sender"] == f"daemon:mail@{HOST}"
    assert "reply to the message that asks for it with the tag approve or reject" in notice["body"]
    assert not await is_delivered(ann)
    await reply(ann, asked, "I say so", tag)
    answer = await got(ann, 3)
    assert (answer["tags"], text in answer["body"]) == (["answer"], True)


async def test_an_approval_answers_what_asks_for_it(stage: Stage, ann: Person) -> None:
    await ann.send(DESK, body="hello")
    first = await got(ann)
    await reply(ann, first, "pay")
    await got(ann, 2)
    await reply(ann, first, "I mean the first message", "approve")
    assert (await got(ann, 3))["sender"] == f"daemon:mail@{HOST}"
    (task,) = await tasks_of(stage, "user:ann")
    assert task.status is TaskStatus.PAUSED


async def test_an_approval_is_for_the_calls_that_were_shown(stage: Stage, ann: Person) -> None:
    """Decided elsewhere, the task asks about another call, and the mail that shows it has not come yet."""
    await ann.send(DESK, body="twice")
    asked = await got(ann)
    assert "pay(amount: 3)" in asked["body"]
    runtime = stage.server.rig.runtime
    assert isinstance(runtime.webhooks, HTTPWebhooks)
    runtime.webhooks.own["mail2"] = lost
    (task,) = await tasks_of(stage, "user:ann")
    approval = GivenApproval(decision="approve", all=True)
    owner = Principal.parse(task.instance)
    await runtime.submit(owner, Submission(task_id=task.task_id, approvals=(approval,)))

    async def asks_again() -> bool:
        (task,) = await tasks_of(stage, "user:ann")
        return "amount: 4" in (task.generation.question or "")

    await eventually(asks_again)
    await reply(ann, asked, "yes", "approve")
    assert "the task asks something else by now" in (await got(ann, 2))["body"]
    assert await asks_again()


async def lost(_url: str, _event_id: str, _body: bytes) -> Reply:
    return Reply(410)


async def test_an_approval_and_a_question_are_answered_one_after_the_other(stage: Stage, ann: Person) -> None:
    await ann.send(DESK, body="both")
    await reply(ann, await got(ann), "yes", "approve")
    asked = await got(ann, 2)
    assert (asked["tags"], asked["body"]) == (["question"], "desk asks: Which?")
    await reply(ann, asked, "the green one")
    answer = await got(ann, 3)
    assert (answer["tags"], answer["body"]) == (["answer"], "::action_complete:: form: the green one")


async def test_mail_names_the_tags_to_those_who_may_decide(stage: Stage, ann: Person) -> None:
    await ann.send(DESK, body="refund")
    asked = await got(ann)
    assert (asked["tags"], asked["body"]) == (
        ["approval"],
        "desk waits for admin to approve refund(amount: 3)",
    )
    await reply(ann, asked, "I say so", "approve")
    assert "calls on which others decide" in (await got(ann, 2))["body"]


async def test_what_fails_is_a_reply_too(stage: Stage, ann: Person) -> None:
    await ann.send(DESK, body="wait")
    (task,) = await tasks_of(stage, "user:ann")
    await stage.server.rig.runtime.cancel(Principal.parse("user:ann@example"), task.task_id, "enough")
    failed = await got(ann)
    assert (failed["tags"], "enough" in failed["body"]) == (["failed"], True)


async def test_a_deleted_task_is_not_begun_again(stage: Stage, ann: Person) -> None:
    await ann.send(DESK, body="hello")
    answer = await got(ann)
    (task,) = await tasks_of(stage, "user:ann")

    async def is_deleted() -> bool:
        try:
            await stage.server.rig.runtime.delete(task.instance, task.task_id)
        except TaskBusy:
            return False
        return True

    await eventually(is_deleted)
    await reply(ann, answer, "again")
    assert "the task of this thread was deleted" in (await got(ann, 2))["body"]
    assert not await is_delivered(ann)


async def test_a_task_takes_few_messages_of_a_sender_that_is_no_person(stage: Stage, claude: Person) -> None:
    first = await claude.send(DESK, body="hello")
    for n in range(19):
        await claude.send(DESK, body=str(n), reply_to=first["message_id"])
    assert await is_delivered(claude)
    await claude.send(DESK, body="20", reply_to=first["message_id"])
    assert not await is_delivered(claude)
    (task,) = await tasks_of(stage, f"user:claude/team/{HOST}")
    assert len(task.submitted) == 20


async def test_notices_are_no_submissions(stage: Stage, ann: Person) -> None:
    root = await stage.person("root", "admin")
    new = {"worker_name": "night", "daemon_password": "secret"}
    assert (await root.post("/admin/daemons", new)).status_code == 200
    night = await stage.log_in(f"daemon:night@{HOST}", "secret")
    await night.send(DESK, body="hello")
    assert not await is_delivered(night)
    await ann.send(f"daemon:mail@{HOST}", body="thank you")
    assert not await is_delivered(ann)
    assert await ann.box("inbox") == []


async def test_agents_that_are_no_entrypoints_take_answers_only(stage: Stage, ann: Person) -> None:
    await ann.send(HELPER, body="hello")
    assert f"takes only answers to what it has asked; write to {DESK}" in (await got(ann))["body"]


async def test_a_list_with_two_agents_begins_two_tasks(stage: Stage, ann: Person) -> None:
    root = await stage.person("root", "admin")
    await root.post("/admin/lists", {**NEW_LIST, "members": [DESK, ann.address, HELPER]})
    await ann.send(f"list:tea@team@{HOST}", DESK, body="hello")
    bodies = {await body_of(ann, entry) for entry in await ann.box("inbox")} if await got(ann, 3) else set()
    assert "ann said hello" in bodies
    assert len(await tasks_of(stage, "user:ann")) == 1


async def test_an_agent_on_a_list_that_its_sender_does_not_see_is_not_named(
    stage: Stage, ann: Person, bob: Person
) -> None:
    root = await stage.person("root", "admin")
    private = {"members": [HELPER], "owner": bob.address, "policy": {"visibility": "private"}}
    await root.post("/admin/lists", {**NEW_LIST, **private})
    for person, named in ((ann, f"list:tea@team@{HOST}"), (bob, HELPER)):
        await person.send(f"list:tea@team@{HOST}")
        assert (HELPER in (await got(person))["body"]) == (person is bob)
        (entry,) = await person.box("outbox")
        assert [each["recipient"] for each in entry["undelivered"]] == [named]


async def test_mail_to_two_agents_or_to_a_list_of_both_is_two_tasks(stage: Stage) -> None:
    agents = {name: build_agent(play, supervises=True, name=name) for name in ("one", "two")}
    both = [f"{name}@pair@{HOST}" for name in agents]
    adapter = SQLiteAdapter(IN_MEMORY)
    await adapter.open()
    async with Stage(adapter.rows, build_swarm(agents, name="pair"), adapter.store) as pair:
        ann, root = await pair.person("ann"), await pair.person("root", "admin")
        await root.post("/admin/lists", {**NEW_LIST, "members": both})
        for count, to in ((2, both), (4, [f"list:tea@team@{HOST}"])):
            await ann.send(*to, body="hello")
            await got(ann, count)
            assert {entry["sender"] for entry in await ann.box("inbox", limit=2)} == set(both)
            tasks = (await pair.server.rig.store.list_tasks("user:ann@pair")).tasks
            assert sorted(task.entrypoint for task in tasks) == sorted([*agents] * (count // 2))
    await adapter.close()


async def test_an_approval_has_the_link_to_the_page(stage: Stage, ann: Person) -> None:
    stage.server.rig.runtime.base_url = "https://mail.test"
    await ann.send(DESK, body="pay")
    asked, (task,) = await got(ann), await tasks_of(stage, "user:ann")
    assert asked["body"].endswith(f", or decide at https://mail.test/ui#task={task.task_id}.")


async def test_a_long_answer_is_cut(stage: Stage, ann: Person) -> None:
    stage.server.rig.runtime.base_url = "https://mail.test"
    await ann.send(DESK, body="x" * 65_535)
    answer, (task,) = await got(ann), await tasks_of(stage, "user:ann")
    assert len(answer["body"]) == 65_535
    assert answer["body"].endswith(f"[65544 characters in all: https://mail.test/ui#task={task.task_id}]")


async def test_the_swarm_is_listed_with_its_entrypoints(stage: Stage, ann: Person) -> None:
    (listed,) = (await ann.get("/swarms")).json()["swarms"]
    assert (listed["name"], listed["num_agents"]) == ("example", 1)
    assert (await ann.get("/swarms/example")).json()["swarm"]["agents"] == ["desk"]
    root = await stage.person("root", "admin")
    new = {"agent_name": "desk", "swarm_name": "example", "agent_password": "secret"}
    assert (await root.post("/admin/agents", new)).status_code == 409
    swarm = {"name": "example", "description": "", "keywords": []}
    assert (await root.post("/admin/swarms", swarm)).status_code == 409
    assert (await root.ask("DELETE", "/admin/swarms/example")).status_code == 409


# ------------------------------------------------------------------------------------------------------------ members


async def test_a_reply_of_a_member_is_the_response(stage: Stage, ann: Person, bob: Person) -> None:
    await ann.send(DESK, body="ask bob")
    asked = await got(bob)
    assert (asked["sender"], asked["subject"], asked["body"]) == (DESK, "Request", "What of bob?")
    assert (await bob.get(f"/inbox/{asked['message_id']}")).json()["entry"]["tasks"] == [], "it is ann's"
    (task,) = await tasks_of(stage, "user:ann")
    (waiting,) = (await stage.server.task(task.task_id))["waiting_for"]
    assert (waiting["swarm"], waiting["agent"], waiting["asked_by"]) == ("bob", "bob", "desk")
    await reply(bob, asked, "all is well")
    assert (await got(ann))["body"] == "all is well"
    assert await tasks_of(stage, "user:bob") == []
    await reply(bob, asked, "one more thing")
    assert "has ended, and waits for no answer" in (await got(bob, 2))["body"]


async def test_an_answer_that_was_heard_is_no_submission_when_it_is_given_again(
    stage: Stage, ann: Person, claude: Person
) -> None:
    """A process may die after the task has heard it, before the delivery is noted."""
    await ann.send(DESK, body="ask claude")
    await got(claude)
    sent = await claude.send(DESK, body="fine")
    await got(ann)
    assert stage.host.tasks is not None
    row = (MESSAGES, sent["message_id"])
    message = Message.read((await stage.rows.read(row))[row])
    assert isinstance(await stage.host.tasks.take(message, DESK.rpartition("@")[0]), TaskKey)
    assert await tasks_of(stage, f"user:claude/team/{HOST}") == []


async def test_another_person_does_not_speak_for_a_member(stage: Stage, ann: Person, bob: Person) -> None:
    eve = await stage.person("eve")
    await ann.send(DESK, body="ask bob")
    asked = await got(bob)
    await bob.send(DESK, eve.address, body="all is well", reply_to=asked["message_id"])
    assert (await got(ann))["body"] == "all is well"
    seen = await got(eve)
    await reply(eve, {**seen, "sender": DESK}, "mine")
    assert (await got(eve, 2))["body"] == "eve said mine"
    assert len(await tasks_of(stage, "user:eve")) == 1


async def test_a_list_without_members_is_no_delivery(stage: Stage, ann: Person) -> None:
    root = await stage.person("root", "admin")
    await root.post("/admin/lists", {**NEW_LIST, "members": []})
    await ann.send(DESK, body="ask review")
    assert "this list has no members" in (await got(ann))["body"]
    await ann.send(MEMBERS["review"])
    assert not await is_delivered(ann)
    assert "this list has no members" in (await got(ann, 2))["body"]


async def test_mail_that_answers_nothing_is_the_response_to_the_only_request(
    stage: Stage, ann: Person, claude: Person
) -> None:
    await ann.send(DESK, body="ask claude")
    await got(claude)
    await claude.send(DESK, body="fine")
    assert (await got(ann))["body"] == "fine"
    assert await tasks_of(stage, f"user:claude/team/{HOST}") == []
    await claude.send(DESK, body="hello")  # nothing is asked any more
    assert (await got(claude, 2))["body"] == f"claude/team/{HOST} said hello"


async def test_mail_that_answers_nothing_is_no_response_to_one_of_two_requests(
    stage: Stage, ann: Person, bob: Person
) -> None:
    await ann.send(DESK, body="ask bob")
    await ann.send(DESK, body="ask bob")
    await got(bob, 2)
    await bob.send(DESK, body="hello")
    assert (await got(bob, 3))["body"] == "bob said hello"
    assert [each.is_running for each in await tasks_of(stage, "user:ann")] == [True, True]


async def test_two_members_are_asked_at_once(stage: Stage, ann: Person, bob: Person, claude: Person) -> None:
    await ann.send(DESK, body="ask bob claude")
    await reply(claude, await got(claude), "from claude")
    await reply(bob, await got(bob), "from bob")
    assert (await got(ann))["body"] == "from claude and from bob"


async def test_the_first_reply_of_a_list_is_the_response(stage: Stage, ann: Person, bob: Person) -> None:
    root, eve = await stage.person("root", "admin"), await stage.person("eve")
    await root.post("/admin/lists", {**NEW_LIST, "members": [bob.address, eve.address]})
    await ann.send(DESK, body="ask review")
    asked = await got(eve)
    await reply(eve, asked, "I say yes")
    await reply(bob, await got(bob), "I say no")
    assert (await got(ann))["body"] == "I say yes"
    assert [task.is_running for task in await tasks_of(stage, "user:ann")] == [False]
    mallory = await stage.person("mallory")
    await mallory.send(DESK, body="mine", reply_to=asked["message_id"])
    assert (await got(mallory))["body"] == "mallory said mine"  # no member


async def test_later_replies_of_a_list_are_mail_while_the_task_runs(
    stage: Stage, ann: Person, bob: Person, claude: Person
) -> None:
    root, eve = await stage.person("root", "admin"), await stage.person("eve")
    await root.post("/admin/lists", {**NEW_LIST, "members": [bob.address, eve.address]})
    await ann.send(DESK, body="ask review claude")
    await got(claude)
    for person, text in ((eve, "I say yes"), (bob, "I say no")):
        await reply(person, await got(person), text)
    assert (await got(ann))["body"] == "I say yes and I say no"  # claude's answer isn't awaited any more
    assert (await got(claude, 2))["tags"] == ["withdrawn"]


async def test_an_answer_that_comes_too_late_is_mail_while_the_task_runs(stage: Stage) -> None:
    """What its agents broadcast is not mail to a member."""

    def ask(view: View) -> Sequence[Call]:
        if view.mail.sender == "bob":
            return [complete(f"at last: {view.mail.body}")]
        return [request("bob", body="What?"), call("send_broadcast", subject="Hear", body="all"), wait()]

    late = build_swarm(
        {
            "desk": build_agent(ask, targets=["helper", "bob"], supervises=True, name="desk"),
            "helper": build_agent(lambda _: [wait()], targets=["desk"], name="helper"),
        },
        members=MEMBERS,
    )
    adapter = SQLiteAdapter(IN_MEMORY)
    await adapter.open()
    async with Stage(adapter.rows, late, adapter.store) as stage:
        ann, bob, rig = await stage.person("ann"), await stage.person("bob"), stage.server.rig
        await ann.send(DESK, body="hello")
        asked = await got(bob)
        await rig.pass_time(7.1 * 86_400)
        await got(bob, 2)  # the first request has expired, and the agent asks again
        await reply(bob, asked, "it is done")
        assert (await got(ann))["body"] == "at last: it is done"
        await got(bob, 3)
        assert await bob.subjects() == ["Withdrawn: Request", "Request", "Request"]
    await adapter.close()


async def test_a_member_without_an_account_gets_nothing_and_the_agent_hears(
    stage: Stage, ann: Person
) -> None:
    await ann.send(DESK, body="ask bob")
    answer = await got(ann)
    assert "could not be delivered to bob" in answer["body"]
    assert "this account does not exist" in answer["body"]


async def test_a_member_hears_that_no_answer_is_needed(stage: Stage, ann: Person, bob: Person) -> None:
    await ann.send(DESK, body="ask bob")
    asked = await got(bob)
    (task,) = await tasks_of(stage, "user:ann")
    await stage.server.rig.runtime.cancel(Principal.parse("user:ann@example"), task.task_id)
    withdrawn = await got(bob, 2)
    assert (withdrawn["subject"], withdrawn["reply_to"]) == ("Withdrawn: Request", asked["message_id"])
    assert withdrawn["tags"] == ["withdrawn"]
    await bob.send(DESK, body="hello")
    assert (await got(bob, 3))["body"] == "bob said hello"
    await reply(bob, asked, "here it is")
    assert "waits for no answer" in (await got(bob, 4))["body"]


async def test_an_answer_is_awaited_for_days(stage: Stage, ann: Person, bob: Person) -> None:
    rig = stage.server.rig
    assert isinstance(rig.clock, FakeClock)
    await ann.send(DESK, body="ask bob")
    await got(bob)
    await rig.pass_time(6.9 * 86_400)
    (task,) = await tasks_of(stage, "user:ann")
    assert task.is_running
    await rig.pass_time(0.2 * 86_400)
    assert "bob has not answered in time" in (await got(ann))["body"]


# ----------------------------------------------------------------------------------------------------------- servers


async def test_the_swarm_is_the_one_that_an_admin_has_loaded(
    stage: Stage, ann: Person, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another process may have got it."""
    service, runtime = stage.server.service, stage.server.rig.runtime
    loaded = replace(runtime.swarm, description="Tea, and more")

    class Served:
        async def refresh(self) -> None:
            runtime.swarm = loaded

    monkeypatch.setattr(service, "served", Served())
    (listed,) = (await ann.get("/swarms")).json()["swarms"]
    assert listed["description"] == "Tea, and more"
