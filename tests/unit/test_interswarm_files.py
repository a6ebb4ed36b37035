"""Files of mail to other swarms: the other swarm fetches each once, by a link that nobody can forge."""

import pytest
from support.services.federation import Federation

from mail.core.task.files import LINK_SECONDS, File, is_signed, make_link, make_reference, place_of
from mail.core.task.task import TaskKey
from mail.errors import FileNotFound
from mail.testing.agents import Call, View, build_agent, build_swarm, complete, request, respond, turns, wait

PNG = b"\x89PNG\r\n\x1a\n" + bytes(range(64))
ANN = "user:ann@a"


def files_read(view: View) -> list[str]:
    return [each["name"] for each in view.history[-1].get("files", [])]


class Pair:
    """A swarm that asks another one about a file, and gets it back."""

    def __init__(self) -> None:
        self.seen: dict[str, list[str]] = {}

    def ask(self, view: View) -> list[Call]:
        if view.mail.sender_type == "user":
            return [request("worker@b", view.mail.body), wait()]
        self.seen["a"] = files_read(view)
        return [complete(view.mail.body)]

    def answer(self, view: View) -> list[Call]:
        self.seen["b"] = files_read(view)
        return [respond(view.mail.sender, f"seen: {view.mail.body}")]

    def federation(self) -> Federation:
        here = build_agent(
            self.ask, targets=["worker@b"], supervises=True, enable_interswarm=True, name="supervisor"
        )
        there = build_agent(self.answer, name="worker", enable_entrypoint=True)
        boss = build_agent(turns([complete("never")]), targets=["worker"], supervises=True, name="supervisor")
        return Federation(
            build_swarm({"supervisor": here}, name="a"),
            build_swarm({"supervisor": boss, "worker": there}, name="b"),
        )


async def test_the_other_swarm_fetches_a_file_and_sends_it_back() -> None:
    pair, picture = Pair(), PNG + bytes(100_000)
    async with pair.federation() as both:
        file = await both["a"].runtime.caller_files.put(ANN, File(picture, "cat.png"))
        outcome = await both["a"].ask(f"What is file:{file.id}?", files=(file.id,))
        assert outcome.answer == f"seen: What is file:{file.id}?"
        assert pair.seen == {"a": ["cat.png"], "b": ["cat.png"]}
        there = TaskKey("swarm:a@b", outcome.key.task_id)
        (kept,) = (await both["b"].runtime.caller_files.of_task(there)).values()
        assert (kept.id, kept.link) == (file.id, "")
        assert await both["b"].runtime.caller_files.read("swarm:a@b", file.id) == picture
        assert len(picture) < (await both["b"].task(there)).stored_bytes < 2 * len(picture)
        (sent,) = both.sent[0][0].payload.routing_info["files"]  # type: ignore[index]
        assert (sent["swarm"], place_of(sent["link"])[:2]) == ("a", (ANN, file.id))  # type: ignore[index]


async def test_another_file_than_the_one_that_was_sent_is_not_taken() -> None:
    pair = Pair()
    async with pair.federation() as both:
        files = both["a"].runtime.caller_files
        file = await files.put(ANN, File(PNG, "cat.png"))

        async def lie(instance: str, file_id: str) -> bytes:
            return b"another"

        files.read = lie  # type: ignore[method-assign]
        outcome = await both["a"].ask(f"What is file:{file.id}?", files=(file.id,))
        assert outcome.answer == f"seen: What is file:{file.id}?"
        assert await both["b"].runtime.caller_files.of_task(TaskKey("swarm:a@b", outcome.key.task_id)) == {}


async def test_a_link_ends_and_cannot_be_forged() -> None:
    async with Pair().federation() as both:
        files = both["a"].runtime.caller_files
        file = await files.put(ANN, File(PNG, "cat.png"))
        (linked,) = await files.link(ANN, [file], "a")
        assert await files.follow(linked.link) == (ANN, file)
        owner, _, until, signature = linked.link.split(".")
        for wrong in (
            "",
            "x",
            linked.link[:-1] + ("0" if linked.link[-1] != "0" else "1"),
            f"{owner}.{'0' * 32}.{until}.{signature}",
            f"{owner}.{file.id}.{int(until) + 1}.{signature}",
            make_link(ANN, file.id, "another secret", int(until)),
            make_link("user:bob@a", file.id, "another secret", int(until)),
        ):
            with pytest.raises(FileNotFound):
                await files.follow(wrong)
        now = both["a"].clock.now().timestamp()
        assert now < int(until) <= now + LINK_SECONDS
        secret = await both["a"].runtime.files.read_secret(ANN, file.id)  # type: ignore[union-attr]
        assert secret is not None
        assert is_signed(linked.link, secret)
        with pytest.raises(FileNotFound):
            await files.follow(make_link(ANN, file.id, secret, int(now) - 1))


async def test_a_file_that_is_gone_has_no_link() -> None:
    async with Pair().federation() as both:
        gone = make_reference(PNG, "cat.png")
        assert await both["a"].runtime.caller_files.link(ANN, [gone], "a") == [gone]
