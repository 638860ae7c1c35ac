"""What the text of a response template's region is: text, JSON with a dialect, tags, lines of keys and values.

Numbers stay the digits that they are, `Digits`: nothing passes through a float. Source: as `response_template.py`.
"""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from dragoman.core.messages import JsonText
from dragoman.identify.response_template.spec import Field
from dragoman.schema.argument_types import as_json, as_string

_NUMBER: Final = frozenset({"number"})
_PLACE: Final = re.compile(r"\{(\w+(?:\.\w+)*)\}")
_BARE_KEY: Final = re.compile(r"(?<=[{,])(\w+):")
FAILURES: Final = (ValueError, LookupError, TypeError, AttributeError, RecursionError)
"""What content that is not as its template says can raise."""


class Digits(str):
    """A JSON number, as it was written."""

    __slots__ = ()


def value_of(field: Field, body: str, captures: Mapping[str, str | None]) -> Any:
    """What the template makes of a region.

    Raises: FAILURES: the text is not what the template says it is.
    """
    value = _parsed(body, field.content, field.content_args)
    if field.transform is None:
        return value
    taken = {name: text for name, text in captures.items() if text is not None}
    if not field.transform_each:
        return _made(field.transform, {**taken, "content": value})
    if not isinstance(value, list):
        raise TypeError(f"expected a list, got {type(value).__name__}")
    return [_made(field.transform, {**taken, **item}) for item in value]


def as_text(value: Any) -> JsonText:
    """A value as JSON."""
    match value:
        case Digits():
            return str(value)
        case str():
            return as_string(value)
        case dict():
            return "{" + ", ".join(f"{as_string(str(k))}: {as_text(v)}" for k, v in value.items()) + "}"
        case list():
            return "[" + ", ".join(map(as_text, value)) + "]"
        case _:
            return json.dumps(value)


def _parsed(text: str, content: str, args: Mapping[str, Any]) -> Any:
    stripped = text.strip() if args.get("strip", True) else text
    match content:
        case "text":
            return stripped
        case "int":
            return int(stripped)
        case "float":
            digits = stripped.strip()
            value = float(digits)
            # Python reads more than JSON has: `.5`, `1_000`, `nan`.
            return Digits(digits if as_json(digits, _NUMBER) == digits else json.dumps(value, allow_nan=False))
        case "bool":
            return stripped.lower() in ("true", "1")
        case "json":
            return _json(text, args)
        case "xml-inline":
            matches = re.finditer(args["tag_pattern"], text, re.DOTALL)
            pairs = [(match["key"], _inner(match.groupdict().get("value") or "", args)) for match in matches]
            return _merged(pairs) if args.get("merge_duplicates") else dict(pairs)
        case _:
            lines = [line.split(args.get("kv_sep", ":"), 1) for line in text.split(args.get("line_sep", "\n"))]
            return {pair[0].strip(): _inner(pair[1].strip(), args) for pair in lines if len(pair) == 2}


def _inner(text: str, args: Mapping[str, Any]) -> Any:
    parser = args.get("value_parser")
    return _parsed(text, parser.get("name", "text"), parser.get("args", {})) if parser else text


def _merged(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    """Values of a key that comes several times, as a list."""
    found: dict[str, list[Any]] = {}
    for key, value in pairs:
        found.setdefault(key, []).append(value)
    return {key: values if len(values) > 1 else values[0] for key, values in found.items()}


def _json(text: str, args: Mapping[str, Any]) -> Any:
    try:
        return json.loads(_plain_json(text, args), parse_float=Digits, parse_int=Digits, parse_constant=_refuse)
    except ValueError:
        if args.get("allow_non_json"):
            return text.strip()
        raise


def _plain_json(text: str, args: Mapping[str, Any]) -> str:
    """JSON of a dialect: strings in marks of their own, keys without any."""
    marks = [f"{re.escape(opener)}(.*?){re.escape(closer)}" for opener, closer in args.get("string_delims", ())]
    pieces, at = [], 0
    for found in re.finditer("|".join(marks), text, re.DOTALL) if marks else ():
        inside = next(group for group in found.groups() if group is not None)
        pieces += [_quoted_keys(text[at : found.start()], args), json.dumps(inside)]
        at = found.end()
    return "".join([*pieces, _quoted_keys(text[at:], args)])


def _quoted_keys(text: str, args: Mapping[str, Any]) -> str:
    return _BARE_KEY.sub(r'"\1":', text) if args.get("unquoted_keys") else text


def _refuse(constant: str) -> Any:
    raise ValueError(f"{constant} is no JSON")


def _made(transform: Any, scope: Mapping[str, Any]) -> Any:
    """The template of a value, with what stands in braces put in."""
    match transform:
        case dict():
            return {key: _made(inner, scope) for key, inner in transform.items()}
        case list():
            return [_made(inner, scope) for inner in transform]
        case str() if place := _PLACE.fullmatch(transform):
            value: Any = scope
            for key in place[1].split("."):
                value = value[key]
            return value
        case _:
            return transform
