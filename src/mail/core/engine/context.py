"""The context of the agent of one turn: cut before its model call, read on with the tool `read_more`."""

import logging
import re
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import Any

from mail.core.decisions.context import (
    PIECE,
    SUMMARY,
    Load,
    carry,
    characters,
    decide_cut,
    estimate,
    is_notable,
    learn,
    result_limit,
    split,
    transcribe,
    write_summary,
)
from mail.core.engine.histories import CachedHistory
from mail.core.protocol.calls import AgentToolCall
from mail.core.protocol.mail_tools import ReadMore
from mail.core.task.change import Turn
from mail.core.task.client_tools import NO_CLIENT_TOOLS
from mail.core.task.context import (
    BYTES_PER_TOKEN,
    QUOTED,
    SMALL_CONTEXT,
    UNKNOWN,
    AgentContext,
    Context,
    Cut,
    Portion,
    Preparation,
    bare,
    refer,
    reference,
    shorten,
    size_of_files,
    text_of,
)
from mail.core.task.ports import Store, read_history
from mail.core.task.size import json_size, text_size
from mail.core.task.skills import REFERENCE as SKILL
from mail.core.task.skills import read_skill
from mail.core.task.swarm import ActionCore, AgentCore, History, SwarmCore, WindowedFunction
from mail.core.task.task import Task
from mail.core.task.turn_state import Receipt
from mail.core.turns.context import NOTHING_PROVIDED, TURN
from mail.errors import RetryLater, StoreError, ToolCallFault

logger = logging.getLogger(__name__)

MOST_PIECES = 16
"""Pieces of a transcript that are summarized one after the other; of a longer one, the newest."""

_IN_HISTORY = re.compile(r"(\d{1,9})\.(\d{1,9})", re.ASCII)
"""The reference of an entry of the agent's history: its portion, and its place there."""

FILE = "file:"
"""What the reference of a file begins with."""

Save = Callable[[Preparation], Awaitable[None]]
"""Stores how far the preparation of a turn has come, with what it has cost."""


class AgentWindow:
    """The window of the model of a turn's agent, and what the agent sees in it."""

    def __init__(self, turn: Turn, agent: AgentCore, settings: Context, store: Store, save: Save) -> None:
        self._turn = turn
        self._agent = agent
        self._settings = settings
        self._store = store
        self._save = save
        self._context = turn.task.contexts.get(turn.mailbox, UNKNOWN)
        self._last = turn.task.histories.get(turn.mailbox, 0)
        self._summarized = False
        self._has_failed = False

    # ------------------------------------------------------------------------------------------- before the call

    async def prepare(self, history: CachedHistory, earlier: Preparation | None) -> Preparation | None:
        """Return what must be done to the context before the call; None for nothing.

        `earlier` is the preparation of an interrupted attempt, which is completed. While a call still fits into the
        window, nothing is left out without a summary.
        """
        more = self._new_size
        is_begun = earlier is not None and earlier.before == self._context.cut
        is_measured = self._context.tokens or history.measured.tokens
        if not (is_begun or is_measured) and history.size + more <= SMALL_CONTEXT:
            return None
        tokens, window = self._estimate(history, more), await self.tokens()
        if earlier is not None and is_begun:
            prepared = await self._complete(history, earlier)
        elif tokens <= self._settings.at * window:
            return None
        else:
            load = Load(tokens, history.size + more + self._fixed + json_size(history.carried))
            cut = decide_cut(self._context.cut, history.portions, load, window, self._settings)
            if cut is None:
                return None
            prepared = await self._move(history, cut, self._context, window, load)
        if self._has_failed and tokens <= window:
            return None  # the next turn tries again to write the summary
        return prepared

    async def prepare_again(self, history: CachedHistory, prepared: Preparation | None) -> Preparation:
        """Return what must be done after the model has refused a call as too long: what it has taught, and a cut.

        The cut is that of the refused call if nothing is left to cut.
        """
        context = self._context if prepared is None else prepared.context
        portions = [
            portion.seen(context.cut) for portion in history.portions if portion.n >= context.cut.begin
        ]
        more = self._new_size
        carried = json_size(history.carried if prepared is None else prepared.carried)
        size = sum(portion.size for portion in portions) + more + self._fixed + carried
        tokens = size // BYTES_PER_TOKEN if prepared else self._estimate(history, more)
        learnt = learn(context, self._agent.model or "", await self.tokens(), tokens)
        load = Load(tokens, size)
        cut = decide_cut(context.cut, portions, load, learnt.window, self._settings, harder=True)
        if cut is None:
            return replace(prepared or Preparation(before=context.cut), context=learnt)
        summary = "" if prepared is None else prepared.summary
        return await self._move(history, cut, learnt, learnt.window, load, summary)

    def messages(self, history: CachedHistory, prepared: Preparation | None) -> tuple[History, History]:
        """Return what the model reads: its history, and the messages of this turn."""
        prompts = self._turn.prompts
        if prepared is None:
            return history.entries, prompts
        cut = prepared.context.cut
        is_moved = cut.begin != self._context.cut.begin
        entries = bare(prepared.carried if is_moved else history.carried)
        for portion in history.portions:
            if portion.n >= cut.begin:
                entries += portion.seen(cut).entries
        if cut.references > self._last:
            prompts = [refer(entry, self._last + 1, n, cut.long) for n, entry in enumerate(prompts)]
        return entries, prompts

    async def counted(
        self, history: CachedHistory, prepared: Preparation | None, tokens: int
    ) -> Preparation | None:
        """Return the preparation that the turn's commit stores, after a call of so many tokens; None for none."""
        context = self._context if prepared is None else prepared.context
        measured = replace(context, tokens=tokens, counted=self._last if tokens else 0)
        history.measured = measured
        if prepared is not None:
            return replace(prepared, context=measured, is_called=True)
        most = max(tokens, history.size // BYTES_PER_TOKEN)
        is_small = most * BYTES_PER_TOKEN <= SMALL_CONTEXT
        if context is UNKNOWN and (is_small or not is_notable(most, await self.tokens())):
            return None
        return Preparation(before=context.cut, context=measured)

    async def tokens(self) -> int:
        """Return the window, in tokens."""
        return await window_of(self._agent, self._context)

    @property
    def _new_size(self) -> int:
        """The bytes of what the turn reads, with its files."""
        return json_size(self._turn.prompts) + size_of_files(self._turn.prompts)

    @property
    def _fixed(self) -> int:
        function = self._agent.function
        return function.fixed_size if isinstance(function, WindowedFunction) else 0

    def _estimate(self, history: CachedHistory, more: int) -> int:
        """Return the tokens of the next call, with so many bytes of messages."""
        context = max(self._context, history.measured, key=lambda each: each.counted)
        if not context.tokens:
            more += self._fixed + json_size(history.carried)
        return estimate(context, history.portions, more)

    async def _move(
        self,
        history: CachedHistory,
        cut: Cut,
        context: AgentContext,
        window: int,
        load: Load,
        summary: str = "",
    ) -> Preparation:
        carried: History = []
        if cut.begin != self._context.cut.begin:
            pinned = self._turn.task.pins_of(self._turn.mailbox)
            carried = carry(history.portions, history.carried, cut.begin, pinned, window)
        moved = replace(context, cut=cut, tokens=0, counted=0)
        begun = Preparation(
            before=self._context.cut,
            context=moved,
            carried=carried,
            summary=summary,
            room=int(window * PIECE / load.tokens_per_byte),
            is_called=False,
        )
        return await self._complete(history, begun)

    async def _complete(self, history: CachedHistory, begun: Preparation) -> Preparation:
        """Summarize what is no longer read, piece by piece, unless an earlier attempt has done so."""
        begin = begun.context.cut.begin
        if begin == begun.before.begin or any(entry.get("summarizes") for entry in begun.carried):
            return begun
        left_out = [portion for portion in history.portions if portion.n < begin]
        if not self._summarized:
            self._summarized = True
            begun = await self._summarize(history.carried, left_out, begun)
        carried = [write_summary(begun.summary, begin), *begun.carried]
        prepared = replace(begun, carried=carried)
        if prepared.summary:
            await self._save(prepared)
        return prepared

    async def _summarize(
        self, carried: History, left_out: Sequence[Portion], begun: Preparation
    ) -> Preparation:
        function, window = self._agent.function, await self.tokens()
        if not isinstance(function, WindowedFunction):
            return begun
        entries = [*bare(carried), *(entry for portion in left_out for entry in portion.entries)]
        pieces = split(transcribe(entries), begun.room)[-MOST_PIECES:]
        turn = TURN.set(
            replace(TURN.get(), tools=NO_CLIENT_TOOLS, provided=NOTHING_PROVIDED, is_private=True)
        )
        try:
            return await self._summarize_pieces(function, pieces, characters(window, SUMMARY), begun)
        finally:
            TURN.reset(turn)

    async def _summarize_pieces(
        self, function: WindowedFunction, pieces: Sequence[str], most: int, begun: Preparation
    ) -> Preparation:
        for n, piece in enumerate(pieces[begun.pieces :], begun.pieces + 1):
            so_far = f"The summary so far:\n{begun.summary}\n\nWhat came after it:\n" if begun.summary else ""
            summary = await self._ask_for_summary(function, so_far + piece)
            if not summary:
                self._has_failed = True
                return replace(begun, summary="")
            begun = replace(begun, summary=summary[:most], pieces=n)
            if n < len(pieces):
                await self._save(begun)
        return begun

    async def _ask_for_summary(self, function: WindowedFunction, text: str) -> str:
        """Return a summary by the model that is set for it, or else by the agent's own; empty if neither writes one."""
        for model in dict.fromkeys((self._settings.model, None)):
            try:
                if summary := await function.summarize(text, model):
                    return summary
            except (StoreError, RetryLater):
                raise
            except Exception:  # an agent function is foreign code
                logger.warning(
                    "%s can't summarize the oldest turns of agent %s",
                    model or self._agent.model,
                    self._turn.mailbox,
                    exc_info=True,
                )
        return ""

    # --------------------------------------------------------------------------------------------- long results

    async def shorten(self, call: AgentToolCall, receipt: Receipt, calls: int) -> Receipt:
        """Return a receipt with the beginning of a long result, of one of so many calls; the whole is stored apart."""
        content = receipt.content
        if len(content) <= QUOTED or call.tool_name == ReadMore.tool_name:
            return receipt
        limit = result_limit(self._settings, await self.tokens(), calls)
        if len(content) <= limit:
            return receipt
        ref = reference(content)
        await self._store.put_content(self._turn.task.key, ref, content)
        return replace(receipt, content=shorten(content, limit, ref), apart=text_size(content))

    def reader(self, calls: int) -> ActionCore:
        """Return the tool `read_more`, called beside others in a turn, as an action."""

        async def read(arguments: dict[str, Any]) -> str:
            limit = result_limit(self._settings, await self.tokens(), calls)
            return await self._read(ReadMore.model_validate(arguments), limit)

        return ActionCore(name=ReadMore.tool_name, function=read, read_only=True)

    async def _read(self, tool: ReadMore, limit: int) -> str:
        offset, found = tool.offset, None
        if place := _IN_HISTORY.fullmatch(tool.ref):
            text = await self._entry(int(place[1]), int(place[2]))
            found = None if text is None else (text[offset : offset + limit], len(text))
        elif tool.ref.startswith(FILE):
            text = await _text_of_file(tool.ref.removeprefix(FILE))
            found = None if text is None else (text[offset : offset + limit], len(text))
        elif tool.ref.startswith(SKILL):
            text = read_skill(self._agent.skills, tool.ref)
            found = text[offset : offset + limit], len(text)
        else:
            found = await self._store.read_content(self._turn.task.key, tool.ref, offset=offset, length=limit)
        if found is None:
            raise ToolCallFault(f"there is no text {tool.ref!r}; write the reference as you have read it")
        text, size = found
        end = offset + len(text)
        if not text and size:
            raise ToolCallFault(f"the text has only {size} characters; offset {offset} is behind its end")
        more = f"read_more(ref={tool.ref!r}, offset={end}) continues" if end < size else "that is its end"
        return f"{text}\n[characters {offset} to {end} of {size}; {more}]"

    async def _entry(self, portion: int, index: int) -> str | None:
        """Return the text of an entry of the agent's history, or of a message of this turn."""
        if portion == self._last + 1:
            entries = self._turn.prompts
        elif 0 < portion <= self._last:
            key, mailbox = self._turn.task.key, self._turn.mailbox
            entries = await read_history(self._store, key, mailbox, after=portion - 1, upto=portion)
        else:
            entries = []
        return text_of(entries[index]) if index < len(entries) else None


async def _text_of_file(file_id: str) -> str | None:
    """Return the text of a file of the turn's task; None if there is none. Raises ToolCallFault if it has no text."""
    files = TURN.get().files
    file = None if files is None else await files.find(file_id)
    if files is None or file is None:
        return None
    if not file.is_text:
        raise ToolCallFault(f"{file.name} is of type {file.type}, which can't be read as text")
    data = await files.read(file_id)
    return None if data is None else data.decode(errors="replace")


async def window_of(agent: AgentCore, context: AgentContext) -> int:
    """Return the window of an agent's model, in tokens, as far as it is known."""
    function = agent.function
    known = await function.window() if isinstance(function, WindowedFunction) else None
    return context.window_of(agent.model or "", known)


async def transcript_room(swarm: SwarmCore, task: Task) -> int | None:
    """Return the characters for the transcript that the agent reads which must finish the task; None for no limit."""
    name = swarm.closing_agent(task.entrypoint)
    agent = swarm.agent(name)
    if agent.context is None:
        return None
    return characters(await window_of(agent, task.contexts.get(name, UNKNOWN)), 1 / 4)
