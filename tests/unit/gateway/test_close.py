"""Closing a gateway: each part is closed, even if another cannot be closed."""

import pytest

from dragoman.gateway.gateway import Gateway
from dragoman.gateway.storage.response_store import ResponseStore
from dragoman.gateway.vendor_tools.loop import VendorToolRunner
from dragoman.vendor_tools.executor import ToolExecutor
from dragoman.vendor_tools.tool import ToolRunResult, VendorToolCall
from support.scripted_backend import Scripted, plain


async def test_everything_is_closed_if_something_cannot_be_closed() -> None:
    closed: list[str] = []

    class Part(Scripted):
        async def close(self) -> None:
            closed.append("backend")
            raise OSError("no backend")

    class Executor(ToolExecutor):
        async def run(self, call: VendorToolCall) -> ToolRunResult:
            raise NotImplementedError

        async def close(self) -> None:
            closed.append("executor")
            raise OSError("no executor")

    class Store(ResponseStore):
        def close(self) -> None:
            closed.append("store")

    async def end_servers() -> None:
        closed.append("servers")

    tools = VendorToolRunner({"web_search": Executor(), "web_fetch": Executor()}, on_close=end_servers)
    gateway = Gateway([Part(plain), Part(plain)], response_store=Store(), vendor_tools=tools)
    with pytest.raises(ExceptionGroup) as raised:
        await gateway.close()
    assert sorted(closed) == ["backend", "backend", "executor", "executor", "servers", "store"]
    assert raised.group_contains(OSError, match="no backend", depth=1)
    assert raised.group_contains(OSError, match="no executor", depth=2)
