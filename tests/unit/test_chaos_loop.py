"""The event loop of chaos: its time leaps once nothing is under way."""

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from chaos.loop import LeapingLoop


async def close_with_a_call_in_the_queue() -> int:
    """Close a pool of one thread while a call waits for the thread; return how many calls are under way afterwards."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, LeapingLoop)
    gate = threading.Event()
    threads = ThreadPoolExecutor(1)
    running, waiting = (loop.run_in_executor(threads, gate.wait) for _ in range(2))
    assert loop.under_way == 2
    threads.shutdown(wait=False, cancel_futures=True)
    gate.set()
    await asyncio.gather(running, waiting, return_exceptions=True)
    return loop.under_way


def test_a_call_that_is_cancelled_before_a_thread_begins_it_is_not_under_way() -> None:
    with asyncio.Runner(loop_factory=lambda: LeapingLoop(real=True)) as runner:
        assert runner.run(close_with_a_call_in_the_queue()) == 0


def test_a_thread_ends_when_nothing_else_is_ready_and_before_time_leaps() -> None:
    order = []

    async def use_a_thread() -> None:
        done = threading.Event()
        thread = asyncio.create_task(asyncio.to_thread(done.set))
        thread.add_done_callback(lambda _: order.append("thread"))
        asyncio.get_running_loop().call_later(5, order.append, "timer")
        await asyncio.sleep(0)
        assert done.wait(60)
        for _ in range(1000):
            await asyncio.sleep(0)
        order.append("others")
        await thread
        await asyncio.sleep(10)

    with asyncio.Runner(loop_factory=lambda: LeapingLoop(real=False)) as runner:
        runner.run(use_a_thread())
    assert order == ["others", "thread", "timer"]


def test_the_error_of_a_thread_is_raised_where_it_is_awaited() -> None:
    with (
        asyncio.Runner(loop_factory=lambda: LeapingLoop(real=False)) as runner,
        pytest.raises(ZeroDivisionError),
    ):
        runner.run(asyncio.to_thread(divmod, 1, 0))
