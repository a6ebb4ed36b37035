"""A life of a server whose agent is guarded, while it is killed at every point and one of its tasks is cancelled.

The agent says what its guards refuse, in all ways: in arguments of calls, a message to another swarm, an answer, its
thoughts and its text; so does an action. All that leaves the process goes into the file `out`: what actions get, what
clients see, live and stored, requests to webhooks and to the other swarm, spans and the log. `MARKER` may be nowhere
there, and nowhere in the database: not in its bytes if the guards cost nothing (`strict`), as a reply then is judged
before anything is stored. Else checkpoints have it until the turn is committed.

`try` is judged by chance. It may run only if that was the last verdict on its call.
"""

import asyncio
import json
import logging
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from crash_clients import ANN, Violation
from crash_points import append_line, read_lines
from crash_process import Life, _Runtime

from mail.adapters.local.workers import LocalWorkers
from mail.core.decisions.approvals import GivenApproval
from mail.core.decisions.submit import ResumeFrom, Submission
from mail.core.engine.telemetry import Span, Tracer
from mail.core.protocol.calls import AgentToolCall
from mail.core.task.guards import ALLOW, Act, AskPerson, Guard, Refuse, Replace, Ruling, Verdict
from mail.core.task.ports import read_history
from mail.core.task.swarm import ActionCore, AgentCore, History, SwarmCore, ToolChoice
from mail.core.task.task import Task, TaskKey, TaskStatus
from mail.core.task.webhooks import Reply, Webhook
from mail.core.turns.activity import Exchange, ModelCall
from mail.core.turns.context import model_call
from mail.errors import MAILError
from mail.testing.agents import NAME, Call, View, build_swarm, call, complete, interrupt, output
from mail.testing.faults import FaultyPort

MARKER = "b1f5c8e07a93d264"
"""What is refused wherever it stands: as incompressible as its length allows."""

RESULT = "9e3d70c4a8b61f25"
"""What a guard on results refuses; a checkpoint has it until the turn is committed."""

EDITED = "a person's arguments"
"""What a person puts in place of arguments, and a guard refuses."""

TASKS = ("kept", "cancelled")
TRIES = 2
FIRST = 4 + TRIES
"""The results of the first reply."""

GLANCE_SECONDS = 0.005
HOOK = Webhook(url="https://example.com/hook", events=())


def chief(view: View) -> list[Call]:
    """Say all that is refused, one after the other, and then complete."""
    thoughts = {"reasoning": [MARKER], "preamble": MARKER}
    match len(view.results):
        case n if n < FIRST:
            tries = [call("try", n=number) for number in range(TRIES)]
            refused = Call("pay", {"to": MARKER}, **thoughts)
            return [refused, call("pay", to="bob"), call("look"), interrupt("desk@other", MARKER), *tries]
        case n if n == FIRST:
            return [call("pay", to="eve")]
        case n if n == FIRST + 1:
            return [Call("task_complete", {"finish_message": MARKER}, **thoughts)]
    return [complete("done")]


class _Log(logging.Handler):
    def __init__(self, life: "GuardedLife") -> None:
        super().__init__(logging.DEBUG)
        self._life = life

    def emit(self, record: logging.LogRecord) -> None:
        self._life.put("log", self.format(record))


class _Spy(Tracer, Span):
    """Records all that a tracer could."""

    def __init__(self, life: "GuardedLife") -> None:
        self._life = life

    @contextmanager
    def model_call(self, call: ModelCall) -> Iterator[None]:
        yield
        asked = "" if call.exchange is None else call.exchange.messages()
        self._life.put("span", f"{asked} {call.reply and call.reply()}")

    @contextmanager
    def action(self, call: AgentToolCall) -> Iterator["_Spy"]:
        self._life.put("span", f"{call.tool_name} {call.tool_args}")
        yield self

    def note(self, name: str, value: object) -> None:
        self._life.put("span", f"{name} {value}")

    def note_result(self, text: str) -> None:
        self._life.put("span", text)

    def verdict(self, verdict: Verdict) -> None:
        self._life.put("span", f"{verdict.guard} {verdict.outcome}")


class _Outside:
    """The webhooks and the other swarm."""

    retry_seconds: Sequence[float] = (0.0,)

    def __init__(self, life: "GuardedLife") -> None:
        self._life = life

    async def check(self, webhook: Webhook) -> None:
        """Accept it."""

    async def registered(self, caller: str) -> Sequence[Webhook]:
        return ()

    async def send(self, hook: object, event_id: str, body: bytes, *, seconds: float) -> Reply:
        self._life.put("webhook", body.decode())
        return Reply(200)

    async def deliver(self, message: Any, **_settings: Any) -> None:
        self._life.put("peer", str(message))

    async def origin_of(self, swarm: str) -> tuple[str, str]:
        return "", ""

    async def known(self) -> Sequence[str]:
        return ("other",)

    async def caller_ids(self, swarm: str) -> Sequence[str]:
        return ("other",)

    async def obstacle(self, swarm: str) -> str:
        return ""


@dataclass
class GuardedLife(Life):
    """The tasks of ann: one that she approves or edits a call in, and one that she cancels and resumes."""

    _out: int = field(init=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        self._out = os.open(self.folder / "out", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        with suppress(FileExistsError), (self.folder / "variant").open("x") as file:
            file.write(str(self.seed))
        self.variant = int((self.folder / "variant").read_text() or 0)
        self.strict = self.variant % 2 == 0

    def put(self, kind: str, text: str) -> None:
        """Note what has left the process."""
        os.write(self._out, f"{kind} {text}\n".encode())

    async def _serve(self, queue: Any) -> None:
        log = logging.getLogger("mail")
        log.addHandler(_Log(self))
        log.setLevel(logging.DEBUG)
        store: Any = FaultyPort(self.inner, "store", self.points)
        outside: Any = _Outside(self)
        self.runtime = _Runtime(
            self._swarm(),
            store,
            FaultyPort(queue, "queue", self.points),
            self.clock,
            tracer=_Spy(self),
            webhooks=outside,
            peers=outside,
        )
        workers = LocalWorkers(self.runtime, queue)
        self.points.hit("before start")
        await workers.start()
        others = [asyncio.create_task(self._wake()), *(asyncio.create_task(self._follow(t)) for t in TASKS)]
        try:
            async with asyncio.timeout(self.patience):
                await asyncio.gather(*map(self._serve_one, TASKS))
        except TimeoutError:
            self.violations.append(f"the scenario hangs: {[await self._task(task) for task in TASKS]}")
        await workers.stop(grace=self.patience)
        for other in others:
            other.cancel()
        await asyncio.gather(*others, return_exceptions=True)
        if self.violations:
            raise Violation("\n".join(self.violations))

    # ------------------------------------------------------------------------------------------- the agent

    def _swarm(self) -> SwarmCore:
        guards = {"refuses": self._refuse, "replaces": self._replace, "decides": self._decide}
        on = {"refuses": {"answer", "call"}, "replaces": {"message"}, "decides": {"call"}}
        cost = {"refuses": not self.strict, "replaces": False, "decides": self.variant % 4 == 1}
        made = [
            Guard(name=name, function=judge, on=frozenset(on[name]), checkpointed=cost[name])  # type: ignore[arg-type]
            for name, judge in guards.items()
        ]
        made.append(Guard(name="results", function=self._judge_result, on=frozenset({"result"})))
        swarm = build_swarm(
            {"chief": chief},
            actions={name: ActionCore(name, self._action(name)) for name in ("pay", "look", "try")},
            guards=tuple(made),
            task_message_limit=100,
        )
        agent = AgentCore(
            self._speak,
            comm_targets=("desk@other",),
            actions=("pay", "look", "try"),
            enable_entrypoint=True,
            can_complete_tasks=True,
            enable_interswarm=True,
        )
        return SwarmCore(
            name=NAME,
            version="1",
            entrypoint="chief",
            agents={"chief": agent},
            actions=swarm.actions,
            guards=swarm.guards,
            task_message_limit=100,
        )

    async def _speak(self, history: History, choice: ToolChoice) -> Any:
        view = View(history, choice)
        self.points.hit("before agent")
        with model_call("house/model") as said:
            if said.is_traced:
                said.exchange = Exchange(parameters={}, system="", tools=(), messages=lambda: history)
                said.reply = lambda: [{"role": "assistant", "content": MARKER}]
            for kind in ("reasoning", "text", "answer"):
                said.delta(kind, MARKER)  # type: ignore[arg-type]
            await self.points.pause()
        self.points.hit("after agent")
        text = MARKER if len(view.results) == FIRST else None
        return text, output(chief(view), prefix=f"c{len(history)}", text=text)

    def _action(self, name: str) -> Any:
        async def function(args: dict[str, Any]) -> str:
            self.points.hit(f"before action {name}")
            self.put("action", f"{name} {args}")
            if EDITED in str(args) or "refused" in args:
                self.violations.append(f"{name} runs although it was refused: {args}")
            if name == "try" and (last := self._last_verdict(args)) != f"{args.get('key')} allow":
                self.violations.append(f"{name} runs with {args} after {last}")
            await self.points.pause()
            self.points.hit(f"after action {name}")
            return f"seen {RESULT}" if name == "look" else f"done {name}"

        return function

    # ------------------------------------------------------------------------------------------ the guards

    async def _refuse(self, act: Act) -> Ruling:
        self.points.hit(f"before guard {act.on}")
        await self.points.pause()
        self.points.hit(f"after guard {act.on}")
        if act.tool == "pay" and act.arguments.get("to") == "eve":
            return AskPerson("Is it right?")
        return Refuse("it is secret") if MARKER in act.text or EDITED in act.text else ALLOW

    async def _replace(self, act: Act) -> Ruling:
        await self.points.pause()
        return Replace(act.text.replace(MARKER, "…")) if MARKER in act.text else ALLOW

    async def _judge_result(self, act: Act) -> Ruling:
        await self.points.pause()
        return Refuse("it is secret") if RESULT in act.text else ALLOW

    async def _decide(self, act: Act) -> Ruling:
        """Decide by chance. A key for each question goes to the action with the arguments."""
        await self.points.pause()
        if act.tool != "try":
            return ALLOW
        key = f"{act.task_id}-{act.arguments['n']}-{self.clock.new_id()}"
        outcome = self.points._chance.choice(("allow", "refuse", "raise"))
        append_line(self.folder / "verdicts", f"{key} {outcome}")
        self.points.hit("after guard by chance")
        if outcome == "raise":
            raise ValueError(MARKER)
        return Replace({**act.arguments, "key": key}) if outcome == "allow" else Refuse("by chance")

    def _last_verdict(self, args: dict[str, Any]) -> str:
        """What was last decided on this call of its task, in this reply or a later one."""
        about = str(args.get("key"))[:-36]
        return [line for line in read_lines(self.folder / "verdicts") if line.startswith(about)][-1]

    # ----------------------------------------------------------------------------------------- the clients

    async def _follow(self, task_id: str) -> None:
        """See all that happens in a task, live events included."""
        key = TaskKey(str(ANN), task_id)
        async with self.runtime.turns.live.subscribe(key, deltas=True) as live:
            after = 0
            while True:
                for event in live.take():
                    self.put("live", f"{event.kind} {event.text} {event.extra}")
                with suppress(MAILError):
                    for each in await self.inner.read_events(key, after=after):
                        self.put("event", json.dumps(each.data(task_id)))
                        after = each.seq
                await asyncio.sleep(GLANCE_SECONDS)

    async def _serve_one(self, task_id: str) -> None:
        if await self._task(task_id) is None:
            await self._submit(Submission(body="begin", task_id=task_id, webhook=HOOK))
        if task_id == "cancelled" and "resumed" not in read_lines(self.folder / "steps"):
            for _ in range(self.points._chance.randrange(40)):
                await asyncio.sleep(0)
            with suppress(MAILError):  # it may have ended
                await self.runtime.cancel(ANN, task_id)
                self.points.hit("after cancel")
                await self._submit(
                    Submission(body="go on", task_id=task_id, resume_from=ResumeFrom.USER_RESPONSE)
                )
            append_line(self.folder / "steps", "resumed")
        while (task := await self._task(task_id)) is None or task.status is not TaskStatus.COMPLETED:
            if task is not None and task.status is TaskStatus.FAILED:
                self.violations.append(f"{task_id} has failed")
                return
            if task is not None and task.status is TaskStatus.CANCELLED:
                await self._submit(
                    Submission(body="go on", task_id=task_id, resume_from=ResumeFrom.USER_RESPONSE)
                )
            if task is not None and task.status is TaskStatus.PAUSED:
                await self._approve(task_id)
            await asyncio.sleep(GLANCE_SECONDS)

    async def _approve(self, task_id: str) -> None:
        edits = self.variant % 3 == 0
        approval = (
            GivenApproval(decision="edit", arguments={"to": EDITED})
            if edits
            else GivenApproval(decision="approve")
        )
        with suppress(MAILError):
            await self._submit(
                Submission(
                    task_id=task_id, resume_from=ResumeFrom.BREAKPOINT_TOOL_CALL, approvals=(approval,)
                )
            )

    async def _submit(self, submission: Submission) -> None:
        self.points.hit("before submit")
        await self.runtime.submit(ANN, submission)
        self.points.hit("after submit")

    async def _task(self, task_id: str) -> Task | None:
        return await self.inner.load(TaskKey(str(ANN), task_id))

    # ------------------------------------------------------------------------------------------ the checks

    async def _check_what_was_left(self) -> None:
        self._check_bytes()

    async def _check_the_end(self) -> None:
        async with self.world.open(self.points, self.clock) as self.inner:
            for task_id in TASKS:
                await self._check_task(TaskKey(str(ANN), task_id))
        self._check_bytes()
        self._must_not_have(self.world.text(), "a record")
        if problems := list(self.world.problems()):
            raise Violation("\n".join(problems))

    async def _check_task(self, key: TaskKey) -> None:
        events = await self.inner.read_events(key)
        task = await self.inner.load(key)
        assert task is not None
        answer = await self.inner.read_response(key, task.generation.number)
        history = await read_history(self.inner, key, "chief")
        shown = f"{[event.data(key.task_id) for event in events]} {answer} {history} {task}"
        self._must_not_have(shown, f"the record of {key.task_id}")
        if answer is None or answer.message.body != "done":
            raise Violation(f"{key.task_id}: the answer is {answer}")
        if "[refused: it is secret]" not in str(history):
            raise Violation(f"{key.task_id}: nothing was refused: {history}")

    def _must_not_have(self, text: str, what: str) -> None:
        for marker in (MARKER, RESULT):
            if marker in text:
                at = text.index(marker)
                raise Violation(f"{what} has what was refused: {text[max(0, at - 300) : at + 100]}")

    def _check_bytes(self) -> None:
        out = (self.folder / "out").read_text() if (self.folder / "out").exists() else ""
        self._must_not_have(out, "what has left the process")
        for path in Path(self.folder).glob("mail.db*") if self.strict else ():
            if MARKER.encode() in path.read_bytes():
                raise Violation(f"{path.name} has the bytes of what was refused")
