"""HTTP clients for tests, which share one TLS context: a new one reads the trusted certificates, which takes 25 ms."""

import ssl
from typing import Any

import httpx2

DEADLINE_S = 120.0
NO_CERTIFICATES = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
SETTINGS: dict[str, Any] = {"timeout": DEADLINE_S, "trust_env": False, "verify": NO_CERTIFICATES}


def http_client(base_url: str = "", **settings: Any) -> httpx2.AsyncClient:
    """Returns a client for plain HTTP that ignores proxy settings of the environment."""
    return httpx2.AsyncClient(base_url=base_url, **SETTINGS | settings)


def blocking_http_client(base_url: str = "", **settings: Any) -> httpx2.Client:
    """Returns such a client for tests without an event loop."""
    return httpx2.Client(base_url=base_url, **SETTINGS | settings)
