"""Facts that a server reports about itself, at paths as in catalog/servers.py; each path is requested once."""

import hashlib
from collections.abc import Iterator
from fnmatch import fnmatchcase
from typing import Any, Final
from urllib.parse import urlsplit

import msgspec

from dragoman.backends.http.connection import HttpResponse, UpstreamConnection
from dragoman.catalog import servers
from dragoman.catalog.servers import FactPath, Provider, ServerSign
from dragoman.core.errors import BackendUnavailableError

MODELS: Final = "/v1/models"
_VOLATILE_FIELDS: Final = frozenset(("created", "permission", "status", "state", "modified_at", "loaded"))
"""Fields of a model that change while the model does not."""


class ServerInfo:
    """The cached responses of one server."""

    def __init__(self, connection: UpstreamConnection, url: str) -> None:
        self._connection = connection
        self._host = urlsplit(url).hostname or ""
        self._responses: dict[tuple[str, str], HttpResponse | None] = {}

    async def fetch(self, path: str, model: str = "") -> HttpResponse | None:
        """Returns the response to a GET of this path, or to a POST if a model is named; None if there is none
        in time.
        """
        key = (path, model)
        if key not in self._responses:
            body = msgspec.json.encode({"model": model}) if model else None
            try:
                self._responses[key] = await self._connection.request(path, body)
            except BackendUnavailableError:
                self._responses[key] = None
        return self._responses[key]

    async def get(self, place: FactPath, model: str = "") -> str | None:
        """Returns the value at this place: a string as it is, other values as JSON; None if there is none."""
        if place == "host":
            return self._host
        posted, bare = place.startswith("POST "), place.removeprefix("POST ")
        path, _, field = bare.partition("#")
        path, _, header = path.partition("@")
        body = await self.fetch(path, model if posted else "")
        if body is None or body.status != 200:
            return None
        if header:
            return body.headers.get(header)
        value = next(values_at(decode_or_none(body.body), field.split("/"), model), _MISSING)
        if value is _MISSING:
            return None
        return value if isinstance(value, str) else msgspec.json.encode(value).decode()

    async def get_number(self, places: tuple[FactPath, ...], model: str) -> int:
        """Returns the first whole number over 0 at one of these places; 0 if there is none."""
        for place in places:
            value = await self.get(place, model) or ""
            if value.isdecimal() and int(value):
                return int(value)
        return 0

    async def find_provider(self) -> Provider | None:
        """Returns the first provider whose signs match."""
        for provider in servers.providers():
            if await self.is_provider(provider):
                return provider
        return None

    async def is_provider(self, provider: Provider) -> bool:
        """Returns whether a sign of this provider matches; requests only what its signs need."""
        for sign in provider.signs:
            if await self._matches(sign):
                return True
        return False

    async def _matches(self, sign: ServerSign) -> bool:
        body = await self.get(sign.at)
        if body is None or not sign.matches(body):
            return False
        for each in sign.also:
            if not await self._matches(each):
                return False
        return True

    async def models(self) -> tuple[str, ...]:
        """Returns the ids of the listed models."""
        body = await self.fetch(MODELS)
        listed = decode_or_none(body.body) if body is not None and body.status == 200 else None
        return tuple(dict.fromkeys(str(id) for id in values_at(listed, ["data", "*", "id"], "")))

    async def fingerprint(self, provider: Provider | None, model: str) -> str:
        """Returns a hash of the server's provider, version and template and the model's entry, without
        volatile fields.
        """
        body = await self.fetch(MODELS)
        entry: dict[str, Any] = next(
            values_at(decode_or_none(body.body) if body else None, ["data", "{model}"], model), {}
        )
        lasting = {name: value for name, value in sorted(entry.items()) if name not in _VOLATILE_FIELDS}
        version = await self.get(provider.version, model) if provider and provider.version else None
        template = await self.get(provider.template, model) if provider and provider.template else None
        described = msgspec.json.encode([provider.name if provider else "", version, template, lasting])
        return hashlib.sha256(described).hexdigest()[:16]


_MISSING: Final = object()


def decode_or_none(body: bytes) -> Any:
    """Returns the decoded JSON, or None if it is invalid."""
    try:
        return msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def values_at(value: Any, steps: list[str], model: str) -> Iterator[Any]:
    """Yields all values at this path, in order; steps may contain wildcards."""
    if not steps:
        yield value
        return
    step, rest = steps[0], steps[1:]
    for name, inner in _children(value):
        named = step == "{model}" and isinstance(inner, dict) and model in _names(inner)
        if named or (step != "{model}" and fnmatchcase(name, step)):
            yield from values_at(inner, rest, model)


def _children(value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict):
        yield from value.items()
    elif isinstance(value, list):
        yield from ((str(i), each) for i, each in enumerate(value))


def _names(entry: dict[str, Any]) -> tuple[Any, ...]:
    """Returns the fields by which a server may name a model."""
    return (entry.get("id"), entry.get("key"), entry.get("name"), entry.get("model"))
