"""Reads response templates of Hugging Face, with which a tokenizer describes how to read its model's replies.

    {"start_anchor": "<|im_start|>assistant\\n",
     "fields": {"thinking": {"open": "<think>", "close": "</think>"},
                "tool_calls": {"open": "<tool_call>", "close": "</tool_call>", "repeats": true, "content": "json",
                               "transform": {"type": "function", "function": "{content}"}},
                "content": {"close": "<|im_end|>"}}}

A field is a region of the reply, from its opener to its closer; the field without an opener has the text between the
others. `content` says how to parse a region, and `transform` what to make of the result.

Source: https://huggingface.co/docs/transformers/main/chat_response_parsing and the checks of
`transformers/utils/chat_parsing` (5.23, 2026-11). Its regular expressions are those of the package `regex`; those that
Python's own `re` supports are accepted. Templates of an older kind (`response_schema`, with `x-regex`) are rejected,
because transformers has dropped them.
"""

import json
import re
from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import Any, Final, Literal, NamedTuple, TypeAlias

import msgspec
from msgspec import Struct

from dragoman.core.errors import ConfigError

Content: TypeAlias = Literal["text", "int", "float", "bool", "json", "xml-inline", "kv-lines"]
_SPACE = re.compile(r"\s*")
_LITERAL = re.compile(r"(?:[^\\^$.|?*+()\[\]{}]|\\[^\w])*")
"""A regular expression that matches only one string."""
_GROUP = re.compile(r"\(\?:([^()]*)\)")
_SPACES: Final = (r"\s*", r"\s+", r"\n*", r"\n?")


class Field(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, dict=True):
    """A region of the reply, and what to make of it."""

    open: str | tuple[str, ...] = ()
    open_pattern: str = ""
    close: str | tuple[str, ...] = ()
    close_pattern: str = ""
    content: Content = "text"
    content_args: Mapping[str, Any] = {}
    repeats: bool = False
    join: str | None = None
    optional: bool = True
    transform: Any = None
    transform_each: bool = False

    @cached_property
    def opens(self) -> "Anchor | None":
        """What opens the region; None: it has the text between the other fields."""
        return make_anchor(self.open, self.open_pattern)

    @cached_property
    def closes(self) -> "Anchor | None":
        """What closes the region; None: it extends to the end."""
        return make_anchor(self.close, self.close_pattern)


class Template(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A response template."""

    fields: Mapping[str, Field]
    version: Literal[1] = 1
    defaults: Mapping[str, Any] = {}
    start_anchor: str | tuple[str, ...] = ()
    start_anchor_pattern: str = ""

    @property
    def implicit(self) -> str:
        """The field without an opener; "" if each has one."""
        return next((name for name, field in self.fields.items() if field.opens is None), "")

    def regions(self, text: str) -> Iterator["Region"]:
        """Yields the regions of a whole reply, in order; text outside of all fields is a region of the field ""."""
        at, last_matches = 0, dict[str, re.Match[str] | None]()
        while opener := self._next(text, at, last_matches):
            name, match = opener
            if match.start() > at:
                yield Region(self.implicit, text, at, at, match.start(), match.start(), {}, closed=True)
            if name == self.implicit:
                if match.end() == at:
                    break
                at = match.end()
                continue
            closes = self.fields[name].closes
            closer = closes.pattern.search(text, _json_end(self.fields[name], text, match.end())) if closes else None
            end, next_at = closer.span() if closer else (len(text), len(text))
            closed = not closes or bool(closer)
            yield Region(name, text, match.start(), match.end(), end, next_at, match.groupdict(), closed=closed)
            if next_at == at:
                break  # nothing was opened or closed, so the loop would not end
            at = next_at
        if at < len(text):
            yield Region(self.implicit, text, at, at, len(text), len(text), {}, closed=True)

    def _next(
        self, text: str, at: int, last_matches: dict[str, re.Match[str] | None]
    ) -> tuple[str, re.Match[str]] | None:
        """The next match that opens a field or closes the implicit one: the first, of several the longest.

        `last_matches` has the last match of each field, so that text ahead is not searched again.
        """
        openers = []
        for name, field in self.fields.items():
            each = field.opens or field.closes
            match = last_matches.get(name)
            if each and (name not in last_matches or (match and match.start() < at)):
                match = last_matches[name] = each.pattern.search(text, at)
            if match:
                openers.append((match.start(), -match.end(), field.opens is None, name, match))
        *_, name, match = min(openers, key=lambda f: f[:4], default=(0, 0, False, "", None))
        return (name, match) if match else None


def _json_end(field: Field, text: str, at: int) -> int:
    """The end of JSON that begins at `at`, because the closer can occur in its strings."""
    if field.content != "json" or field.content_args:
        return at
    try:
        return json.JSONDecoder().raw_decode(text, _SPACE.match(text, at).end())[1]  # type: ignore[union-attr]
    except (ValueError, RecursionError):
        return at


class Region(NamedTuple):
    """A part of a reply."""

    field: str
    text: str
    """The whole reply."""
    opener_start: int
    """Position at which the opener begins."""
    start: int
    end: int
    closer_end: int
    """Position at which the closer ends."""
    captures: Mapping[str, str | None]
    """The named groups of the opener."""
    closed: bool
    """Whether the closer was found, or none is needed."""

    @property
    def raw(self) -> str:
        """The whole region as written, with opener and closer."""
        return self.text[self.opener_start : self.closer_end]

    @property
    def body(self) -> str:
        """The text between opener and closer."""
        return self.text[self.start : self.end]


class Anchor(NamedTuple):
    """What opens or closes a region."""

    pattern: re.Pattern[str]
    literals: tuple[str, ...]
    """All strings that it can match, without trailing white space; empty if it can match others."""
    prefix: str
    """The beginning of all that it can match; "" if that is not known."""


def make_anchor(literal: str | tuple[str, ...], pattern: str) -> Anchor | None:
    """Returns the anchor for one of these strings, or for a regular expression; None if there is neither.

    Raises:
        re.error: The regular expression is invalid.
    """
    strings = (literal,) if isinstance(literal, str) else literal
    if strings:
        longest_first = sorted(strings, key=len, reverse=True)
        return Anchor(re.compile("|".join(map(re.escape, longest_first))), tuple(strings), "")
    if not pattern:
        return None
    return Anchor(re.compile(pattern, re.DOTALL), _literals(pattern), _prefix(pattern))


def _literals(pattern: str) -> tuple[str, ...]:
    """The strings that a regular expression matches; empty if it can match others."""
    literals: list[str] = []
    for alternative in _alternatives(pattern):
        spaceless = next((alternative.removesuffix(s) for s in _SPACES if alternative.endswith(s)), alternative)
        if group := _GROUP.fullmatch(spaceless):
            literals += _literals(group[1])
        elif spaceless and _LITERAL.fullmatch(spaceless):
            literals.append(_unescape(spaceless))
        elif spaceless != "$":
            return ()
    return tuple(literals)


def _prefix(pattern: str) -> str:
    """The beginning of all strings that a regular expression matches."""
    plain = _LITERAL.match(pattern)
    if not plain or len(_alternatives(pattern)) > 1:
        return ""
    quantified = pattern[plain.end() : plain.end() + 1] in ("*", "+", "?", "{")
    return _unescape(plain[0])[:-1] if quantified else _unescape(plain[0])


def _alternatives(pattern: str) -> list[str]:
    """The alternatives of a regular expression, without those in its groups and classes."""
    alternatives, depth = [""], 0
    for piece in re.findall(r"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]|.", pattern, re.DOTALL):
        depth += (piece == "(") - (piece == ")")
        if piece == "|" and not depth:
            alternatives.append("")
        else:
            alternatives[-1] += piece
    return alternatives


def _unescape(escaped: str) -> str:
    return re.sub(r"\\(\W)", r"\1", escaped)


def read_template(spec: Mapping[str, Any]) -> Template:
    """Reads a response template, as in `tokenizer_config.json`.

    Raises:
        ConfigError: It is invalid, or of a newer version; the message says where.
    """
    if isinstance(spec, Mapping) and any(str(key).startswith("x-") for key in spec):
        raise ConfigError("response_template: x-regex and the like are of an older kind, which has been dropped")
    try:
        template = msgspec.convert(spec, Template)
        for name, field in template.fields.items():
            _check(f"response_template.fields.{name}", field)
        anchors = [make_anchor(template.start_anchor, template.start_anchor_pattern)]
    except (msgspec.ValidationError, re.error) as e:
        raise ConfigError(f"response_template: {e}") from e
    if not template.fields or anchors == [None]:
        raise ConfigError("response_template: expected at least one field, and a start_anchor or start_anchor_pattern")
    unopened = [name for name, field in template.fields.items() if field.opens is None]
    if len(unopened) > 1:
        raise ConfigError(f"response_template: expected at most one field without opener, got {', '.join(unopened)}")
    return template


def _check(path: str, field: Field) -> None:
    for literal, pattern in ((field.open, field.open_pattern), (field.close, field.close_pattern)):
        if literal and pattern:
            raise ConfigError(f"{path}: expected a string or a pattern to open or close it, got both")
        if literal == "" or (isinstance(literal, tuple) and "" in literal):
            raise ConfigError(f"{path}: expected a string of at least one character to open or close it")
    if field.transform_each and field.transform is None:
        raise ConfigError(f"{path}: transform_each needs a transform")
    if field.join is not None and not field.repeats:
        raise ConfigError(f"{path}: join needs repeats")
    _check_content(path, field.content, field.content_args)
    for each in (field.opens, field.closes):
        if each and each.pattern.groupindex and field.transform is None:
            raise ConfigError(f"{path}: named groups need a transform")


def _check_content(path: str, content: object, args: Mapping[str, Any]) -> None:
    tag, inner = args.get("tag_pattern"), args.get("value_parser")
    if content == "xml-inline" and (not isinstance(tag, str) or "key" not in re.compile(tag).groupindex):
        raise ConfigError(f"{path}: expected a tag_pattern with a group named key")
    if isinstance(inner, dict):
        inner_args = inner.get("args", {})
        _check_content(path, inner.get("name", "text"), inner_args if isinstance(inner_args, dict) else {})
