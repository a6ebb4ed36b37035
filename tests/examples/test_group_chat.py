"""mail.examples.group_chat: who hears what, and what the command prints."""

import pytest
from support.processes.server import run_python

from mail.examples.group_chat.chat import CHANNEL, DISHES, HOST, PERSON, QUESTION, GroupChat


async def test_a_broadcast_is_heard_by_all_and_an_answer_by_one() -> None:
    async with GroupChat.open() as chat:
        heard = await chat.say("Please plan a dinner.", HOST)
        assert [(mail.content, mail.channel, mail.is_broadcast) for mail in heard] == [
            (QUESTION, CHANNEL, True),
            ("I have asked everyone.", None, False),
        ]
        host, me = chat.ids[HOST], chat.ids[PERSON]
        events = {
            name: await chat.bridge.swarm.runtime.read_events(chat.bridge.task_id(name, host, CHANNEL))
            for name in DISHES
        }
        for name, dish in DISHES.items():
            answers = [event.data for event in events[name] if event.event == "task_complete"]
            assert len(answers) == 2  # to the question, and to the thanks
            assert f"I bring {dish}." in str(answers[0])
        assert all(mail.sender == host and mail.sender != me for mail in chat.inbox)


async def test_a_broadcast_of_a_person_is_answered_by_each_guest() -> None:
    async with GroupChat.open() as chat:
        heard = await chat.say(QUESTION, channel="for me")
        assert {(chat.name(mail.sender), mail.content) for mail in heard} == {
            (name, f"I bring {dish}.") for name, dish in DISHES.items()
        }
        assert {mail.channel for mail in heard} == {"for me"}


async def test_a_direct_mail_is_answered_by_its_recipient_only() -> None:
    async with GroupChat.open() as chat:
        (answer,) = await chat.say(QUESTION, "Gina", "in private")
        assert (chat.name(answer.sender), answer.channel) == ("Gina", "in private")
        assert answer.content == f"I bring {DISHES['Gina']}."


def test_the_command() -> None:
    done = run_python("-m", "mail.examples.group_chat")
    assert (done.returncode, done.stderr) == (0, "")
    lines = [line.strip() for line in done.stdout.splitlines()]
    assert lines[0] == "Paula → Hanna: Please plan a dinner."
    assert "Hanna → all [dinner]: Who brings what?" in lines
    assert "Gina → Paula [in private]: I bring a bowl of cherries." in lines
    assert lines[-1] == "Hanna → Paula [dinner]: Thank you, Paula!"


@pytest.mark.parametrize(("argument", "code"), [("--help", 0), ("--loud", 2)])
def test_the_command_takes_no_arguments(argument: str, code: int) -> None:
    done = run_python("-m", "mail.examples.group_chat", argument)
    assert done.returncode == code
    assert "usage: python -m mail.examples.group_chat" in done.stdout + done.stderr
    assert "Paula" not in done.stdout
