"""What a server tells of itself: places as catalog/servers.py writes them, each answer asked for once."""

import hashlib
from collections.abc import Iterator
from fnmatch import fnmatchcase
from typing import Any, Final
from urllib.parse import urlsplit

import msgspec

from dragoman.backends.http.connection import HttpResponse, UpstreamConnection
from dragoman.catalog import servers
from dragoman.catalog.servers import FactPath, ServerKind, ServerSign
from dragoman.core.errors import BackendUnavailableError

MODELS: Final = "/v1/models"
_PASSING: Final = frozenset(("created", "permission", "status", "state", "modified_at", "loaded"))
"""What a server tells of a model that changes while the model does not."""


class Telling:
    """The answers of one server."""

    def __init__(self, connection: UpstreamConnection, url: str) -> None:
        self._connection = connection
        self._host = urlsplit(url).hostname or ""
        self._said: dict[tuple[str, str], HttpResponse | None] = {}

    async def said(self, path: str, model: str = "") -> HttpResponse | None:
        """The answer of this path, to GET, or to POST where a model is named; None where there is none in time."""
        key = (path, model)
        if key not in self._said:
            body = msgspec.json.encode({"model": model}) if model else None
            try:
                self._said[key] = await self._connection.request(path, body)
            except BackendUnavailableError:
                self._said[key] = None
        return self._said[key]

    async def told(self, place: FactPath, model: str = "") -> str | None:
        """What stands at this place: a string as it is, anything else as JSON; None where nothing does."""
        if place == "host":
            return self._host
        posted, bare = place.startswith("POST "), place.removeprefix("POST ")
        path, _, field = bare.partition("#")
        path, _, header = path.partition("@")
        said = await self.said(path, model if posted else "")
        if said is None or said.status != 200:
            return None
        if header:
            return said.headers.get(header)
        found = next(members(json(said.body), field.split("/"), model), _NONE)
        if found is _NONE:
            return None
        return found if isinstance(found, str) else msgspec.json.encode(found).decode()

    async def number(self, places: tuple[FactPath, ...], model: str) -> int:
        """The first whole number over 0 at one of these places; 0 where none stands there."""
        for place in places:
            found = await self.told(place, model) or ""
            if found.isdecimal() and int(found):
                return int(found)
        return 0

    async def kind(self) -> ServerKind | None:
        """The first kind of which there is a sign."""
        for kind in servers.server_kinds():
            if await self.is_a(kind):
                return kind
        return None

    async def is_a(self, kind: ServerKind) -> bool:
        """Whether there is a sign of this kind; nothing else is asked."""
        for sign in kind.signs:
            if await self._has(sign):
                return True
        return False

    async def _has(self, sign: ServerSign) -> bool:
        told = await self.told(sign.at)
        if told is None or not sign.matches(told):
            return False
        for each in sign.also:
            if not await self._has(each):
                return False
        return True

    async def models(self) -> tuple[str, ...]:
        """The names that it lists."""
        said = await self.said(MODELS)
        listed = json(said.body) if said is not None and said.status == 200 else None
        return tuple(dict.fromkeys(str(id) for id in members(listed, ["data", "*", "id"], "")))

    async def fingerprint(self, kind: ServerKind | None, model: str) -> str:
        """Of what it tells of itself and of this model, but for what changes by the minute."""
        said = await self.said(MODELS)
        entry: dict[str, Any] = next(members(json(said.body) if said else None, ["data", "{model}"], model), {})
        lasting = {name: value for name, value in sorted(entry.items()) if name not in _PASSING}
        version = await self.told(kind.version, model) if kind and kind.version else None
        template = await self.told(kind.template, model) if kind and kind.template else None
        whole = msgspec.json.encode([kind.name if kind else "", version, template, lasting])
        return hashlib.sha256(whole).hexdigest()[:16]


_NONE: Final = object()


def json(body: bytes) -> Any:
    """The value, or None where it is none."""
    try:
        return msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def members(value: Any, steps: list[str], model: str) -> Iterator[Any]:
    """All values to which these steps lead, in order."""
    if not steps:
        yield value
        return
    step, rest = steps[0], steps[1:]
    for name, inner in _inside(value):
        named = step == "{model}" and isinstance(inner, dict) and model in _names(inner)
        if named or (step != "{model}" and fnmatchcase(name, step)):
            yield from members(inner, rest, model)


def _inside(value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict):
        yield from value.items()
    elif isinstance(value, list):
        yield from ((str(i), each) for i, each in enumerate(value))


def _names(entry: dict[str, Any]) -> tuple[Any, ...]:
    """What a server calls a model in a list of its own."""
    return (entry.get("id"), entry.get("key"), entry.get("name"), entry.get("model"))
