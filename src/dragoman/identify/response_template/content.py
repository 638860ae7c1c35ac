"""Parses the text of a response template's region: as text, JSON in a dialect, tags, or lines of keys and values.

Numbers stay the digits as written, `NumberText`; nothing passes through a float. Source: as in `spec`.
"""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from dragoman.core.messages import JsonText
from dragoman.identify.response_template.spec import Field
from dragoman.parsing.shapes.object_notation import NumberText
from dragoman.schema.argument_types import as_json, as_string

_NUMBER: Final = frozenset({"number"})
_REFERENCE: Final = re.compile(r"\{(\w+(?:\.\w+)*)\}")
_BARE_KEY: Final = re.compile(r"(?<=[{,])(\w+):")
CONTENT_ERRORS: Final = (ValueError, LookupError, TypeError, AttributeError, RecursionError)
"""Errors raised if the content of a region does not match its template."""


def field_value(field: Field, body: str, captures: Mapping[str, str | None]) -> Any:
    """Returns the value that the template makes of a region.

    Args:
        field: The field of the region.
        body: The text between opener and closer.
        captures: The named groups of the opener.

    Raises:
        CONTENT_ERRORS: The text does not match the template.
    """
    value = _parse_content(body, field.content, field.content_args)
    if field.transform is None:
        return value
    values = {name: text for name, text in captures.items() if text is not None}
    if not field.transform_each:
        return _apply_transform(field.transform, {**values, "content": value})
    if not isinstance(value, list):
        raise TypeError(f"expected a list, got {type(value).__name__}")
    return [_apply_transform(field.transform, {**values, **item}) for item in value]


def to_json(value: Any) -> JsonText:
    """Encodes a value as JSON."""
    match value:
        case NumberText():
            return str(value)
        case str():
            return as_string(value)
        case dict():
            return "{" + ", ".join(f"{as_string(str(k))}: {to_json(v)}" for k, v in value.items()) + "}"
        case list():
            return "[" + ", ".join(map(to_json, value)) + "]"
        case _:
            return json.dumps(value)


def _parse_content(text: str, content: str, args: Mapping[str, Any]) -> Any:
    stripped = text.strip() if args.get("strip", True) else text
    match content:
        case "text":
            return stripped
        case "int":
            return int(stripped)
        case "float":
            digits = stripped.strip()
            value = float(digits)
            # Python accepts more than JSON: `.5`, `1_000`, `nan`.
            return NumberText(digits if as_json(digits, _NUMBER) == digits else json.dumps(value, allow_nan=False))
        case "bool":
            return stripped.lower() in ("true", "1")
        case "json":
            return _decode_json(text, args)
        case "xml-inline":
            matches = re.finditer(args["tag_pattern"], text, re.DOTALL)
            pairs = [(match["key"], _parse_inner(match.groupdict().get("value") or "", args)) for match in matches]
            return _merge_duplicates(pairs) if args.get("merge_duplicates") else dict(pairs)
        case _:
            lines = [line.split(args.get("kv_sep", ":"), 1) for line in text.split(args.get("line_sep", "\n"))]
            return {pair[0].strip(): _parse_inner(pair[1].strip(), args) for pair in lines if len(pair) == 2}


def _parse_inner(text: str, args: Mapping[str, Any]) -> Any:
    parser = args.get("value_parser")
    return _parse_content(text, parser.get("name", "text"), parser.get("args", {})) if parser else text


def _merge_duplicates(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    """Pairs as a mapping; the values of a key that occurs several times become a list."""
    merged: dict[str, list[Any]] = {}
    for key, value in pairs:
        merged.setdefault(key, []).append(value)
    return {key: values if len(values) > 1 else values[0] for key, values in merged.items()}


def _decode_json(text: str, args: Mapping[str, Any]) -> Any:
    try:
        return json.loads(
            _standard_json(text, args), parse_float=NumberText, parse_int=NumberText, parse_constant=_reject_constant
        )
    except ValueError:
        if args.get("allow_non_json"):
            return text.strip()
        raise


def _standard_json(text: str, args: Mapping[str, Any]) -> str:
    """Converts JSON of a dialect to standard JSON: strings with other delimiters, keys without quotes."""
    marks = [f"{re.escape(opener)}(.*?){re.escape(closer)}" for opener, closer in args.get("string_delims", ())]
    pieces, at = [], 0
    for match in re.finditer("|".join(marks), text, re.DOTALL) if marks else ():
        string = next(group for group in match.groups() if group is not None)
        pieces += [_quote_keys(text[at : match.start()], args), json.dumps(string)]
        at = match.end()
    return "".join([*pieces, _quote_keys(text[at:], args)])


def _quote_keys(text: str, args: Mapping[str, Any]) -> str:
    return _BARE_KEY.sub(r'"\1":', text) if args.get("unquoted_keys") else text


def _reject_constant(constant: str) -> Any:
    raise ValueError(f"{constant} is not JSON")


def _apply_transform(transform: Any, scope: Mapping[str, Any]) -> Any:
    """The transform with the references in braces replaced by their values."""
    match transform:
        case dict():
            return {key: _apply_transform(inner, scope) for key, inner in transform.items()}
        case list():
            return [_apply_transform(inner, scope) for inner in transform]
        case str() if place := _REFERENCE.fullmatch(transform):
            value: Any = scope
            for key in place[1].split("."):
                value = value[key]
            return value
        case _:
            return transform
