"""What the processes that are killed are busy with: a swarm, and the people who use it.

The agents decide by what they remember and by nothing else, and not by the order in which answers come, so that
the answers are the same however often the server dies. The one thing that may differ is what DESIGN allows: an
action that is not idempotent and was caught in the middle is not repeated, and its agent says so.

    ann: plan ──► chief ─► scout: look up (idempotent) and hold (not) at once, clerk: book (not),
                           a broadcast, interrupts; hold and book can't be done at once, so that their turns are parked
                         helper: two requests to an agent with one copy, so that one waits until the copy is free
                  chief: approve? and pay (not idempotent), which needs approval ──► PAUSED
    ann: yes, and she approves
                  chief ─► scout: file it (not idempotent), and completes at once: that request is stashed
    ann: and? ──► the stash is delivered, scout files after its model was busy, chief completes
    bob: ping, and at once ping again ──► two answers, whether or not the second came into a running task;
         the same task id as ann's, another instance
"""

from typing import Any

from mail.testing.agents import (
    Call,
    View,
    acknowledge,
    broadcast,
    call,
    complete,
    ignore,
    interrupt,
    request,
    respond,
    wait,
)

PLAN, APPROVAL, FOLLOW_UP = "plan the party", "yes, do it", "is it filed?"
PINGS = ("ping", "ping again")
TASK_ID = "the-task"
UNKNOWN = "unknown"


def chief(view: View) -> list[Call]:
    mail = view.mail
    answers = {letter.subject: letter.body for letter in view.messages if letter.sender_type == "agent"}
    if mail.sender_type == "user":
        if mail.body in PINGS:
            return [complete(f"pong for {mail.sender}: {mail.body}")]
        if mail.body == FOLLOW_UP:
            return [wait("the filing")]
        return [
            request("scout", "find a room", "Room"),
            request("clerk", "book a band", "Band"),
            request("helper", "buy napkins", "Napkins"),
            request("helper", "buy flags", "Flags"),
            broadcast("we plan a party", "News"),
            interrupt("clerk", "use the blue form", "Form"),
            wait("all answers"),
        ]
    if mail.sender_type == "system":
        if mail.subject != "::action_complete::":
            return [complete(f"UNEXPECTED {mail.subject} {mail.body}")]
        return [
            request("scout", "file the papers", "File"),
            complete(f"{mail.body}; {answers['Re: Room']}; {answers['Re: Band']}; {paid(view)}"),
        ]
    if mail.subject == "Re: File":
        return [complete(f"{answers['Re: Room']}; {answers['Re: Band']}; {paid(view)}; {mail.body}")]
    if {
        "Re: Room",
        "Re: Band",
        "Re: Napkins",
        "Re: Flags",
    } <= answers.keys() and "::action_complete::" not in {letter.subject for letter in view.messages}:
        return [call("approve", room=answers["Re: Room"], band=answers["Re: Band"]), call("pay")]
    if mail.subject == "Re: Room":
        return [interrupt("clerk", "hurry up", "Hurry"), wait("the band")]
    return [wait("more")]


def paid(view: View) -> str:
    """What has become of the payment that ann has approved."""
    if f"SUCCESS: {RESULTS['pay']}" in view.results:
        return f"pay: {RESULTS['pay']}"
    is_unknown = any(result.startswith("ERROR: the outcome is unknown") for result in view.results)
    return f"pay: {UNKNOWN}" if is_unknown else f"UNEXPECTED {view.results}"


def scout(view: View) -> list[Call]:
    mail = view.mail
    if mail.subject == "News":
        return [acknowledge("a party")]
    if mail.sender_type == "agent":
        return [call("look"), call("hold")] if mail.subject == "Room" else [call("file")]
    asked = [letter.subject for letter in view.messages if letter.subject in ("Room", "File")][-1]
    return [respond("chief", outcome(view), f"Re: {asked}")]


def helper(view: View) -> list[Call]:
    mail = view.mail
    if mail.subject == "News":
        return [acknowledge("a party")]
    others = [letter.subject for letter in view.messages if letter.subject not in ("News", mail.subject)]
    return [respond("chief", f"UNEXPECTED {others}" if others else "done", f"Re: {mail.subject}")]


def clerk(view: View) -> list[Call]:
    mail = view.mail
    if mail.subject == "News":
        return [ignore("too busy")]
    if mail.subject in ("Form", "Hurry"):
        return [call("web_search_call", query=mail.subject)]
    if mail.subject == "Band":
        return [call("book")]
    return [respond("chief", outcome(view), "Re: Band")]


def outcome(view: View) -> str:
    """What the actions have come to, as the agent was told."""
    if view.mail.subject not in ("::action_complete::", "::action_error::"):
        return f"UNEXPECTED {view.mail.subject} {view.mail.body}"
    return ", ".join(
        f"{line.partition(':')[0]}: {UNKNOWN}" if "the outcome is unknown" in line else line
        for line in view.mail.body.splitlines()
    )


FORGETFUL, WINDOW = "scout", 900
"""The agent whose history becomes a summary in the end, and the tokens that its model reads."""

COPIED = "helper"
"""The agent that works on each request in a copy of its own."""

POLICIES: dict[str, Any] = {"chief": chief, "scout": scout, "clerk": clerk, "helper": helper}

RESULTS = {"look": "room 7", "hold": "key 2", "book": "band 3", "file": "paper 5", "pay": "bill 9"}
IDEMPOTENT = {"look"}
APPROVED = {"pay"}
LATER = {"hold", "book"}
"""The actions that raise RetryLater the first time."""

BUSY = ("scout", "File")
"""The agent and the subject of the mail for which its model's provider takes no call the first time."""

CALM_SECONDS = 0.1
"""A hundredth of what it is in servers, as lives are a hundred times shorter: a turn that was open in three of them
waits so long for each before it runs alone."""

PARK_SECONDS = 0.02
"""Seconds for which their turns are parked."""


PONGS = [f"pong for bob: {ping}" for ping in PINGS]


def expected_answers(hold: str, book: str, file: str, pay: str) -> list[str]:
    """The answers to ann's second and third message, given what became of the actions that may not be repeated."""
    room, band, paper = f"look: room 7, hold: {hold}", f"book: {book}", f"file: {file}"
    return [f"approve: {APPROVAL}; {room}; {band}; pay: {pay}", f"{room}; {band}; pay: {pay}; {paper}"]
