"""Whatever a client sends, `read_request` gives a request that can be sent on, or a ClientError that can be told.

Sent on to its own API, it says the same there.

    python -m fuzz.requests --seconds 60 [--seed N]

Begins with every body of `tests/data/dialects/`, damages its bytes or its values, and prints what fails, as small as
it gets.
"""

import json
import random
import re
import sys
from functools import cache
from pathlib import Path
from typing import Any

import msgspec

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

from dragoman import dialects
from dragoman.core.errors import ClientError, UnsupportedError
from dragoman.core.messages import Request
from fuzz.mutate import damaged, run, smallest, spliced
from support.request_facts import essence

DATA = Path(__file__).parent.parent / "tests" / "data" / "dialects"
SMALLEST = b'{"model":"m","max_tokens":9,"input":"hi","messages":[{"role":"user","content":"hi"}]'
WORDS = (
    *(bytes([b]) for b in b'{}[]":,\\ \n\x00\x1f\x7f\x80\xc3\xff0-.e'),
    *(b"null", b"true", b"-1", b"1e999", b"1.0", b"9" * 30, b'""', b"[]", b"{}", b'"\\ud800"', b"\\udc00", b"\\u0000"),
    *(
        b'"type":"text",',
        b'"role":"tool",',
        b'"content":[',
        b"\xed\xa0\x80",
        b"\xef\xbb\xbf",
        b"[" * 400,
        b'{"a":' * 400,
    ),
)
VALUES: tuple[Any, ...] = (
    *(None, True, False, 0, -1, 1.5, 2**63, 2**64, 10**40, 1e308, "", "x", "\ud800", "é" * 200),
    *([], {}, [[]], [None], [{}], {"type": "text"}, {"type": None}, {"": 1}),
)


@cache
def bodies(dialect: str) -> list[bytes]:
    """Good bodies, and bad ones that somebody has thought of."""
    found = [SMALLEST + b"}"]
    for block in re.split(r"^# ", (DATA / dialect / "requests.txt").read_text(), flags=re.M)[1:]:
        _, kind, rest = block.split("\n", 2)
        text = rest.partition("\n---\n")[0].encode()
        found.append(SMALLEST + b"," + text + b"}" if kind.endswith("+") else text)
    return found


def attempt(chance: random.Random) -> str:
    """One mutated body; the failing one, or ""."""
    name = chance.choice(dialects.names())
    good = chance.choice(bodies(name))
    if chance.random() < 0.2:
        good = spliced(good, chance.choice(bodies(name)), chance)
    body = revalued(good, chance) if chance.random() < 0.75 else damaged(good, WORDS, chance)
    if not (problem := wrong(name, body)):
        return ""
    kind = problem.partition("(")[0]
    less = smallest(body, lambda body: wrong(name, body).startswith(kind))
    return f"{name}: {wrong(name, less)}\n\n{less!r}"


def wrong(dialect: str, body: bytes) -> str:
    """What does not hold, or ""."""
    api = dialects.get(dialect)
    try:
        try:
            request = api.read_request(body)
            msgspec.json.encode(request)
            for to in dialects.names():
                _send(request, to)
        except ClientError as error:
            json.loads(api.write_error(error))
            if not 400 <= api.status(error) < 500:
                return f"status {api.status(error)}"
    except Exception as error:  # noqa: BLE001 what may not come out is what this looks for
        return f"{type(error).__name__}({error})"
    return ""


def _send(request: Request, to: str) -> None:
    """To any API: what is written can be read there; to its own, it arrives as what would be written the same."""
    try:
        outgoing = dialects.get(to).write_request(request, request.model)
    except UnsupportedError:
        if to == request.dialect:
            raise AssertionError(f"{to} cannot say what it has read") from None
        return
    body = outgoing.body
    try:
        again = dialects.get(to).read_request(body)
    except ClientError as error:
        raise AssertionError(f"{to} wrote {body!r}: {error}") from None
    if to != request.dialect:
        return
    if dialects.get(to).write_request(again, again.model).body != body:
        raise AssertionError(f"{to} wrote {body!r}")
    if not outgoing.warnings and _said(again) != _said(request):
        raise AssertionError(f"{to} wrote {body!r}, which says something else")


def _said(request: Request) -> dict[str, Any]:
    """Without the schemas of tools, which are made fit where no server of the API takes others."""
    return {**essence(request), "tools": [(tool.name, tool.description) for tool in request.tools]}


def revalued(body: bytes, chance: random.Random) -> bytes:
    """One or two values of the JSON replaced, taken away, or put elsewhere."""
    try:
        root = json.loads(body)
    except ValueError:
        return damaged(body, WORDS, chance)
    for _ in range(chance.choice((1, 1, 2))):
        places = list(_places(root))
        if not places:
            break
        holder, key = chance.choice(places)
        match chance.randrange(4):
            case 0:
                del holder[key]
            case 1:
                source, name = chance.choice(places)
                if _holds(source, name):
                    holder[key] = json.loads(json.dumps(source[name]))
            case _:
                holder[key] = json.loads(json.dumps(chance.choice(VALUES)))
    return json.dumps(root, ensure_ascii=True).encode()


def _holds(holder: Any, key: Any) -> bool:
    return key in holder if isinstance(holder, dict) else key < len(holder)


def _places(value: Any) -> "list[tuple[Any, Any]]":
    """Every place in the JSON: what holds it, and under which key or index."""
    keys = list(value) if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ()
    return [place for key in keys for place in ((value, key), *_places(value[key]))]


if __name__ == "__main__":
    sys.exit(run(__doc__ or "", attempt))
