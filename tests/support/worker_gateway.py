"""A real gateway with several processes in front of an upstream server of a test, which runs in the test's event loop.

Tests that otherwise serve a `Gateway` in their own process use it with `--workers 2`.
"""

import asyncio
import contextlib
import json
import tempfile
from collections.abc import AsyncIterator, Iterator, Mapping
from pathlib import Path
from typing import Any

from dragoman.backends.http.config import HttpConfig
from dragoman.guard.policy import GuardPolicy
from support.gateway import Defaults, Gateway

PATCH = """
import importlib

for module, name, value in {patches!r}:
    setattr(importlib.import_module(module), name, value)
"""


def is_tested() -> bool:
    """Whether gateways have several processes in this run."""
    return Defaults.workers > 1


@contextlib.asynccontextmanager
async def worker_gateway(
    config: HttpConfig, policy: GuardPolicy | None = None, patches: Mapping[str, Any] | None = None
) -> AsyncIterator[Gateway]:
    """Starts the gateway; checks at its end that it stops, and has reported no problem of its own.

    Args:
        config: Settings of the upstream server `far`.
        policy: Settings of the guard.
        patches: Values of module attributes, such as `dragoman.wire.sse.EVENT_LIMIT_BYTES`, in all its processes.
    """
    with tempfile.TemporaryDirectory(prefix="gateway-") as folder:
        home = Path(folder)
        values = [(*name.rpartition(".")[::2], value) for name, value in (patches or {}).items()]
        (home / "sitecustomize.py").write_text(PATCH.format(patches=values))
        upstream = {"auto_probe": False, **_changed(config)}
        tables = {"server": {"workers": Defaults.workers}, "upstreams.far": upstream, "guard": _changed(policy)}
        (home / "config.toml").write_text("\n".join(_lines(tables)))
        gateway = Gateway(
            home,
            *("--config", str(home / "config.toml")),
            settings={"embedded.enabled": "false"},
            variables={"PYTHONPATH": folder} if values else {},
        )
        try:
            await asyncio.to_thread(gateway.ready)
            yield gateway
            assert await asyncio.to_thread(gateway.stop) == 0
        finally:
            if gateway.process.poll() is None:
                gateway.process.kill()
            await asyncio.to_thread(gateway.ended)


def _changed(settings: Any) -> dict[str, Any]:
    """The settings that differ from their defaults."""
    if settings is None:
        return {}
    names = settings.__struct_fields__
    values = {name: getattr(settings, name) for name in names}
    defaults = dict(
        zip(names[len(names) - len(settings.__struct_defaults__) :], settings.__struct_defaults__, strict=True)
    )
    return {name: value for name, value in values.items() if name not in defaults or value != defaults[name]}


def _lines(tables: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    """TOML, whose strings, numbers, booleans and arrays are written as in JSON."""
    for table, values in tables.items():
        yield f"[{table}]"
        for name, value in values.items():
            yield f"{name} = {json.dumps(value)}"
