"""What guards judge of a turn, and what their verdicts make of it. Pure functions."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from mail.core.protocol.address import parse_agent_address
from mail.core.protocol.calls import BUILTIN_TOOLS, TEXT_OUTPUT, AgentToolCall, ToolFormat, compose_reply
from mail.core.protocol.mail_tools import (
    MAIL_TOOLS,
    DiscoverSwarms,
    MAILTool,
    ReadMore,
    SendResponse,
    TaskComplete,
    read_call,
)
from mail.core.protocol.output_schema import written
from mail.core.protocol.values import value
from mail.core.task.change import Turn
from mail.core.task.extras import GuardExtra
from mail.core.task.guards import (
    MAX_REASON,
    NO_JUDGEMENT,
    TEXT,
    WORDS,
    Act,
    Allow,
    AskPerson,
    Guard,
    Outcome,
    Refuse,
    Replace,
    Stage,
    Verdict,
)
from mail.core.task.mailboxes import agent_of
from mail.core.task.swarm import SwarmCore
from mail.core.task.task import TaskKey
from mail.core.task.turn_state import Checkpoint, Receipt
from mail.errors import AgentFault

_RUN = frozenset({DiscoverSwarms.tool_name, ReadMore.tool_name})
"""The tools of MAIL that the engine runs like actions."""


REPLACED = "Replaced"
"""The subject of a message whose replacement has none."""


@value(kw_only=True)
class Case:
    """An act, and how it may be decided.

    Attributes:
        stages: guards of any of these judge it: text without a call is a message or an answer, which only the commit
            decides.
        is_json: whether its text is the arguments of a call, in JSON.
        may_ask: whether a person can decide on it.
        is_approved: whether a person has approved it just as it is.
        is_changed: whether a verdict has put other words in its place.
    """

    place: int
    act: Act
    stages: frozenset[Stage]
    is_json: bool = False
    may_ask: bool = False
    is_approved: bool = False
    is_changed: bool = False


def cases_of(output: Checkpoint, swarm: SwarmCore, turn: Turn, text_recipient: str) -> Iterator[Case]:
    """Yield what a reply is about to do, in its order: what is written outside of calls, then each call.

    `text_recipient` is who gets text without a call, as far as is known (`mail.core.decisions.turn.text_recipient`).
    """
    agent = swarm.agent(turn.mailbox)
    if text := _text_of(output):
        if any(_is_kept(call) for call in output.calls):
            yield Case(place=TEXT, act=_act(turn, "message", text), stages=frozenset({"message"}))
        else:
            may_answer = agent.can_complete_tasks or agent.enable_entrypoint
            stage: Stage = "answer" if may_answer and text_recipient in ("user", "") else "message"
            act = _act(turn, stage, text, target=text_recipient)
            yield Case(place=TEXT, act=act, stages=WORDS if may_answer else frozenset({"message"}))
    for place, call in enumerate(output.calls):
        tool = MAIL_TOOLS.get(call.tool_name)
        if not _is_kept(call):
            continue
        if tool is not None and call.tool_name not in _RUN:
            yield from _mail_case(place, call, tool, swarm, turn)
            continue
        is_form = swarm.form(agent, call.tool_name) is not None
        stages: frozenset[Stage] = frozenset({"call", "message"} if is_form else {"call"})
        act = _act(turn, "call", _json(call.tool_args), call=call)
        yield Case(place=place, act=act, stages=stages, is_json=True, may_ask=tool is None and not is_form)


def edited_cases(output: Checkpoint, turn: Turn, edited: Sequence[str]) -> Iterator[Case]:
    """Yield the approved calls whose arguments a person has changed, by their ids: guards judge these, too."""
    for place, call in enumerate(output.calls):
        if call.tool_call_id in edited:
            act = _act(turn, "call", _json(call.tool_args), call=call)
            yield Case(place=place, act=act, stages=frozenset({"call"}), is_json=True, is_approved=True)


def result_cases(output: Checkpoint, turn: Turn) -> Iterator[Case]:
    """Yield what the actions of a turn have returned, errors included."""
    for place, (call, receipt) in enumerate(zip(output.calls, output.receipts, strict=True)):
        if receipt is not None and receipt.after is not None and receipt.state is not Receipt.State.WAITING:
            act = _act(turn, "result", receipt.content, call=call)
            yield Case(place=place, act=act, stages=frozenset({"result"}))


def later_case(key: TaskKey, agent: str, tool: str, text: str) -> Case:
    """Return the result of a call that comes after the turn of the call; its arguments are not stored."""
    act = Act(on="result", agent=agent, caller=key.instance, task_id=key.task_id, text=text, tool=tool)
    return Case(place=0, act=act, stages=frozenset({"result"}))


def verdict_on(case: Case, guard: Guard, ruling: object) -> Verdict:
    """Return the verdict that follows from what a guard has returned; anything that it may not return refuses."""
    match ruling:
        case Refuse(reason):
            return _verdict(case, guard, Outcome.REFUSE, reason)
        case Allow():
            return _verdict(case, guard, Outcome.ALLOW)
        case AskPerson() if case.is_approved:
            return _verdict(case, guard, Outcome.ALLOW)
        case AskPerson(question) if case.may_ask:
            return _verdict(case, guard, Outcome.ASK, question)
        case AskPerson():
            problem = f"guard {guard.name} asks a person, who can decide on calls of actions only"
        case Replace(by):
            text = by if isinstance(by, str) else _json(by)
            if not case.is_approved and (not case.is_json or _arguments_in(text) is not None):
                return replace(_verdict(case, guard, Outcome.REPLACE), by=text)
            problem = f"guard {guard.name} replaces it by what can't take its place"
        case _:
            problem = f"guard {guard.name} must return a verdict, but returned {type(ruling).__name__}"
    return replace(_verdict(case, guard, Outcome.REFUSE, problem), failed=True)


def failed_verdict(case: Case, guard: Guard, why: str) -> Verdict:
    """Return the verdict of a guard that could not decide, by its setting."""
    outcome = Outcome.ALLOW if guard.fails_open else Outcome.REFUSE
    return replace(_verdict(case, guard, outcome, f"guard {guard.name} {why}"), failed=True)


def after(case: Case, verdict: Verdict) -> Case:
    """Return what a verdict leaves of an act, which the next guard judges."""
    act = case.act
    match verdict.outcome:
        case Outcome.REFUSE:
            act = replace(act, text=refused(verdict.reason), arguments={"refused": verdict.reason})
        case Outcome.REPLACE:
            arguments = act.arguments if act.on == "result" else _saying(case, verdict.by)
            act = replace(act, text=verdict.by, arguments=arguments)
        case _:
            return case
    return replace(case, act=act, is_changed=True)


def apply(output: Checkpoint, cases: Sequence[Case], tool_format: ToolFormat) -> Checkpoint:
    """Return a reply as verdicts have left its cases.

    If one of them is changed, the reply is written again: without thoughts and calls of the provider's own tools, which
    may quote it, and with text outside of its calls only if that was judged and allowed.
    """
    judgement = replace(output.judgement or NO_JUDGEMENT, is_applied=True)
    if not any(case.is_changed for case in cases):
        return replace(output, judgement=judgement)
    left = {case.place: case.act for case in cases}
    text = left[TEXT].text if TEXT in left else None
    indexes = [place for place, call in enumerate(output.calls) if _is_kept(call)]
    kept = [output.calls[place] for place in indexes]
    args = [
        dict(left[place].arguments if place in left else output.calls[place].tool_args) for place in indexes
    ]
    called = [(call.tool_call_id, call.tool_name, given) for call, given in zip(kept, args, strict=True)]
    reply = compose_reply(kept[0].tool_format if kept else tool_format, text, called)
    calls = [
        AgentToolCall(tool_name=tool, tool_args=given, tool_call_id=call_id, **reply)
        for call_id, tool, given in called
    ]
    moved = {TEXT: TEXT, **{place: new for new, place in enumerate(indexes)}}
    verdicts = tuple(replace(each, place=moved[each.place]) for each in judgement.verdicts)
    return replace(
        output,
        text=text,
        calls=tuple(calls),
        receipts=tuple(output.receipts[place] for place in indexes),
        judgement=replace(judgement, verdicts=verdicts),
    )


def apply_to_results(output: Checkpoint, cases: Sequence[Case]) -> Checkpoint:
    """Return a turn whose actions have run with their results as verdicts have left them."""
    for case in cases:
        receipt = output.receipts[case.place]
        if case.is_changed and receipt is not None:
            output = output.with_receipt(case.place, replace(receipt, content=case.act.text))
    return output


def decided(output: Checkpoint) -> Iterator[GuardExtra]:
    """Yield what events say of the verdicts on a turn: one for each objection, and one for an act without any."""
    acts: dict[tuple[int, Stage], list[Verdict]] = {}
    for verdict in () if output.judgement is None else output.judgement.verdicts:
        acts.setdefault((verdict.place, verdict.on), []).append(verdict)
    for (place, _), verdicts in acts.items():
        call = None if place == TEXT else output.calls[place]
        tool, call_id = ("", "") if call is None else (call.tool_name, call.tool_call_id)
        for extra in decided_on(verdicts):
            yield replace(extra, tool_name=tool, tool_call_id=call_id)


def decided_on(verdicts: Sequence[Verdict]) -> Iterator[GuardExtra]:
    """Yield what events say of the verdicts on one act: one for each objection, or one without any."""
    objections = [each for each in verdicts if each.outcome is not Outcome.ALLOW or each.failed]
    for verdict in objections or verdicts[-1:]:
        yield GuardExtra(
            guards=tuple(each.guard for each in ([verdict] if objections else verdicts)),
            on=verdict.on,
            outcome=verdict.outcome.value,
            reason=verdict.reason,
            failed=verdict.failed,
        )


def in_words(decision: GuardExtra, agent: str) -> str:
    """Return a decision of guards in words."""
    who = (
        f"guard {decision.guards[0]}" if len(decision.guards) == 1 else f"guards {', '.join(decision.guards)}"
    )
    what = "" if decision.tool_name in ("", *MAIL_TOOLS) else f" of {decision.tool_name}"
    does = {"allow": "allowed", "replace": "replaced", "refuse": "refused", "ask": "asks a person about"}
    why = f": {decision.reason}" if decision.reason else ""
    return f"{who} {does[decision.outcome]} the {decision.on}{what} by agent {agent}{why}"


def refused(reason: str) -> str:
    """Return what stands in a history in place of what was refused."""
    return f"[refused: {reason}]"


def _is_kept(call: AgentToolCall) -> bool:
    """Return whether a call is more than text, or a call that the provider has run."""
    return call.tool_name != TEXT_OUTPUT and call.tool_name not in BUILTIN_TOOLS


def _text_of(output: Checkpoint) -> str:
    """Return what an agent has written outside of the arguments of its calls."""
    if output.text and output.text.strip():
        return output.text
    said = [str(call.tool_args.get("content", "")) for call in output.calls if call.tool_name == TEXT_OUTPUT]
    said += dict.fromkeys(call.preamble for call in output.calls if call.preamble)
    return "\n\n".join(filter(str.strip, said))


def _mail_case(
    place: int, call: AgentToolCall, tool: type[MAILTool], swarm: SwarmCore, turn: Turn
) -> Iterator[Case]:
    """Yield what a call of a tool of MAIL says, unless it says nothing."""
    target = str(call.tool_args.get("target", ""))
    name, other = parse_agent_address(target)
    to_user = tool is SendResponse and other in (None, swarm.name) and not swarm.has(name)
    stage: Stage = "answer" if tool is TaskComplete or to_user else "message"
    words = _words_of(call, turn)
    text = _json(call.tool_args) if words is None else "\n\n".join(words.values())
    if text.strip():
        act = _act(turn, stage, text, call=call, target="user" if stage == "answer" else target)
        yield Case(place=place, act=act, stages=frozenset({stage}), is_json=words is None)


_WORDS = ("subject", "body", "finish_message", "note", "reason")


def _words_of(call: AgentToolCall, turn: Turn) -> dict[str, str] | None:
    """Return the texts of a call of a tool of MAIL by their arguments; None if its arguments are not those of the tool.

    The answer that a schema demands is one text.
    """
    if call.tool_name == TaskComplete.tool_name and turn.task.generation.output_schema is not None:
        return {"finish_message": written(call.tool_args)}
    try:
        read_call(call)
    except AgentFault:
        return None
    if not call.tool_args.keys() <= MAIL_TOOLS[call.tool_name].arguments().keys():
        return None
    return {name: call.tool_args[name] for name in _WORDS if call.tool_args.get(name) is not None}


def _act(turn: Turn, stage: Stage, text: str, *, call: AgentToolCall | None = None, target: str = "") -> Act:
    return Act(
        on=stage,
        agent=agent_of(turn.mailbox),
        caller=turn.task.instance,
        task_id=turn.task.task_id,
        text=text,
        tool="" if call is None else call.tool_name,
        arguments={} if call is None else call.tool_args,
        target=target,
    )


def _verdict(case: Case, guard: Guard, outcome: Outcome, reason: object = "") -> Verdict:
    return Verdict(
        on=case.act.on,
        place=case.place,
        guard=guard.name,
        outcome=outcome,
        reason=" ".join(str(reason).split())[:MAX_REASON],
    )


def _saying(case: Case, text: str) -> Mapping[str, Any]:
    """Return the arguments of a call with other words, as `Act.text` has them."""
    args = case.act.arguments
    if case.is_json:
        return _arguments_in(text) or {}
    if case.act.tool == TaskComplete.tool_name:
        return {"finish_message": text}
    if "subject" not in args:
        return {**args, **{name: text for name in _WORDS if args.get(name) is not None}}
    subject, gap, body = text.partition("\n\n")
    return {**args, "subject": subject if gap else REPLACED, "body": body if gap else text}


def _arguments_in(text: str) -> dict[str, Any] | None:
    """Return the arguments of a call in JSON; None if they are not."""
    try:
        found = json.loads(text)
    except ValueError:
        return None
    return found if isinstance(found, dict) else None


def _json(args: Mapping[str, Any]) -> str:
    return json.dumps(args, ensure_ascii=False)
