"""Something that may block, in a thread of its own, for asyncio.

    found = await in_thread(board.counts)
    found = await in_thread(board.counts, within=5.0)       TimeoutError if it takes longer

The threads are daemons: a call that never returns (a database server that is frozen) must not keep the process from
ending, as the threads of an executor would. It costs a thread for each call, of which a pool makes a few in a second.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any


async def in_thread(function: Callable[..., Any], *arguments: Any, within: float | None = None) -> Any:
    loop = asyncio.get_running_loop()
    future: asyncio.Future[Any] = loop.create_future()

    def settle(result: Any, error: BaseException | None) -> None:
        if not future.done():
            future.set_result(result) if error is None else future.set_exception(error)

    def work() -> None:
        result, failure = None, None
        try:
            result = function(*arguments)
        except BaseException as error:
            failure = error
        try:
            loop.call_soon_threadsafe(settle, result, failure)
        except RuntimeError:
            pass  # the loop is closed: nobody waits any more

    threading.Thread(target=work, name="dibs-pool", daemon=True).start()
    async with asyncio.timeout(within):
        return await future
