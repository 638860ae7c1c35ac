"""The arguments of one call: their JSON text, and the values that it decodes to, each decoded once.

arguments = Arguments('{"days": "3"}')
arguments.valid(schema)         False; None if they cannot be checked
arguments.violations(schema)    what is wrong with them, cached
arguments.exact                 the value that repairs change, with the digits of its numbers
"""

import json
from collections.abc import Sequence
from functools import cached_property
from typing import Any, Final, NamedTuple

import msgspec

from dragoman.core.messages import JsonText
from dragoman.guard.validation.compiled_schema import UNDECODABLE, UNREADABLE, CompiledSchema, replace_surrogates
from dragoman.guard.validation.violations import Violation


class Arguments:
    """The arguments of one call as the model wrote them, or as they were repaired."""

    def __init__(self, text: JsonText) -> None:
        """Decodes the text; text that is not JSON has the value `UNDECODABLE`."""
        self.text: Final = text
        self._violations: dict[CompiledSchema, Sequence[Violation]] = {}
        try:
            self._value = msgspec.json.decode(text)
        except UNREADABLE:
            self._value = UNDECODABLE

    @property
    def is_decodable(self) -> bool:
        """Whether the text is JSON that Python values can represent. Lone surrogates cannot be."""
        return self._value is not UNDECODABLE

    @cached_property
    def exact(self) -> Any:
        """The value as `decode_exact` returns it; `UNDECODABLE` if a member occurs twice with different values, or if
        the text is not JSON.
        """
        try:
            return decode_exact(self.text)
        except UNREADABLE:
            return UNDECODABLE

    def valid(self, schema: CompiledSchema) -> bool | None:
        """Returns whether the arguments match the schema; None if they cannot be checked."""
        value = self._value if self._value is not UNDECODABLE else replace_surrogates(self.text)
        return None if value is UNDECODABLE else schema.valid(value, len(self.text))

    def violations(self, schema: CompiledSchema) -> Sequence[Violation]:
        """Returns what is wrong with the arguments; empty if they match or cannot be checked.

        Raises:
            ValueError, RecursionError: They cannot be decoded, or are nested too deeply.
        """
        if (known := self._violations.get(schema)) is None:
            value = self._value if self._value is not UNDECODABLE else with_plain_numbers(self.exact)
            known = self._violations[schema] = schema.violations(value)
        return known


class ExactNumber(NamedTuple):
    """A number with a fraction, with the digits that the model wrote."""

    text: str


def decode_exact(text: str) -> Any:
    """Decodes JSON to values that keep the digits of numbers.

    Raises:
        ValueError, RecursionError: It is not JSON, is nested too deeply, or has a member twice with different values.
    """
    return json.loads(text, parse_float=ExactNumber, parse_constant=_reject_constant, object_pairs_hook=_unique_members)


def _unique_members(members: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(members)
    if len(made) < len(members) and any(encode_exact(each) != encode_exact(made[name]) for name, each in members):
        raise ValueError("a member has two values")
    return made


def _reject_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


def with_plain_numbers(value: Any) -> Any:
    """Returns the value with ordinary floats, for the validator."""
    match value:
        case ExactNumber(text):
            return float(text)
        case dict():
            return {name: with_plain_numbers(each) for name, each in value.items()}
        case list():
            return [with_plain_numbers(each) for each in value]
        case _:
            return value


def encode_exact(value: Any) -> str:
    """Encodes a value of `decode_exact` as JSON.

    Raises:
        ValueError, RecursionError: It contains a lone surrogate, or is nested too deeply.
    """
    return msgspec.json.encode(_to_raw(value)).decode()


def _to_raw(value: Any) -> Any:
    match value:
        case ExactNumber():
            return msgspec.Raw(value.text.encode())
        case dict():
            return {name: _to_raw(each) for name, each in value.items()}
        case list():
            return [_to_raw(each) for each in value]
        case int() if not isinstance(value, bool):
            return msgspec.Raw(str(value).encode())
        case _:
            return value
