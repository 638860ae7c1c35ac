"""JSON of response details (`core/response_details.py`) in the vendors' APIs."""

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec
from msgspec import Raw

from dragoman.core.messages import ExtraFields, JsonText, Usage
from dragoman.text import lenient_values
from dragoman.text.json_cursor import NULL, Fields
from dragoman.wire import sse

_NOTHING: Final = (b"null", b"0", b"0.0", b"{}", b"[]", b'""', b"false")

_members: Final = msgspec.json.Decoder(dict[str, Raw]).decode
_encode: Final = msgspec.json.Encoder().encode


def logprobs_json(entries: Sequence[Fields]) -> JsonText:
    """Returns token probabilities as JSON, with the fields that the vendors' types require."""
    return _encode([_entry(each) for each in entries]).decode()


def _entry(fields: Fields) -> dict[str, object]:
    token = lenient_values.string(fields.get("token"))
    required = {"token": token, "bytes": list(token.encode("utf-8", "replace")), "logprob": 0.0}
    members = {name: raw for name, raw in fields.remaining().items() if name != "top_logprobs" and raw != NULL}
    return {
        **required,
        **members,
        "top_logprobs": [_inner(each) for each in lenient_values.objects(fields.get("top_logprobs"))],
    }


def _inner(fields: Fields) -> dict[str, object]:
    entry = _entry(fields)
    del entry["top_logprobs"]
    return entry


def nonempty_fields(fields: Fields, *known: str) -> dict[str, Raw]:
    """Returns the fields that are not in `known` and have a value."""
    texts = ((name, sse.one_line(bytes(raw))) for name, raw in fields.remaining().items() if name not in known)
    return {name: Raw(json) for name, json in texts if json not in _NOTHING}


def unmodelled_counts(counts: Fields, known: Mapping[str, tuple[str, ...]]) -> ExtraFields:
    """Returns usage fields that `Usage` does not model; `known` contains the modelled fields and their inner fields."""
    counts_left = nonempty_fields(counts)
    for name, inner in known.items():
        inner_fields = lenient_values.fields(counts.get(name)) if inner else None
        rest = nonempty_fields(inner_fields, *inner) if inner_fields is not None else {}
        counts_left.pop(name, None)
        if rest:
            counts_left[name] = Raw(_encode(rest))
    return counts_left


def with_unmodelled_counts(counts: dict[str, object], usage: Usage, dialect: str) -> dict[str, object]:
    """Adds the server's other usage fields to `counts`, for a client of the same API."""
    for name, raw in usage.extra.items() if usage.dialect == dialect else ():
        own = counts.get(name)
        counts[name] = {**_members(raw), **own} if isinstance(own, dict) else raw
    return counts
