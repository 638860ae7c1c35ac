"""Backends of scripted upstreams."""

from typing import Any

from dragoman.backends.http.backend import HttpBackend
from dragoman.backends.http.config import HttpConfig
from support.fake_upstream import Server


def upstream(name: str, far: Server, model: str = "own", **settings: Any) -> HttpBackend:
    """Returns a backend that asks this server, without retries unless the settings allow them."""
    own = {"models": (model,), "max_retries": 0, **settings}
    return HttpBackend(name, HttpConfig(url=f"{far.url}/v1", **own), {})
