"""What is known of kinds of servers: rows of `servers.toml`.

A place in what a server tells of itself is written as

    host                                        of its URL
    /v1/models@server                           the header of that answer
    /#name                                      the member of that answer's JSON
    /props#default_generation_settings/n_ctx    a member within a member
    /v1/models#data/{model}/max_model_len       of the item of a list whose id, key or name is the model's
    POST /api/show#model_info/*.context_length  of the answer to {"model": "the model's"}; `*` stands for anything
"""

import re
from functools import cache
from importlib import resources
from typing import Literal, TypeAlias

import msgspec
from msgspec import Struct

from dragoman.core.errors import ConfigError, one_of, quote

FactPath: TypeAlias = str
"""Where a server tells something, as above."""
ChoiceForm: TypeAlias = Literal["auto", "required", "named", "none"]


class ServerSign(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a server of a kind tells."""

    at: FactPath
    words: str = msgspec.field(default="", name="is")
    """A regular expression that is found in it; empty: anything."""
    also: tuple["ServerSign", ...] = ()
    """Signs without which this one is too common to count."""

    def matches(self, told: str) -> bool:
        """Whether what is told there is this sign."""
        return re.search(self.words, told) is not None


class Quirk(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Something that one should know, for people."""

    says: str
    source: str


class ServerKind(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A kind of server."""

    name: str
    title: str
    """For people."""
    source: str
    """Where the facts of this row come from, with the date."""
    port: int = 0
    """Where it listens unless told otherwise; 0: nowhere, as it is a service."""
    api: str = "openai_chat"
    """The API that it is best asked by."""
    signs: tuple[ServerSign, ...]
    """How it is recognised: any of them does."""
    version: FactPath = ""
    schemas: str = ""
    """Whose JSON Schemas it takes (schema/targets.py); empty: those of its API."""
    native: Literal["trusted", "measured"] = "measured"
    """Whether its own tool calls can be trusted whatever the model, or are to be measured."""
    trusted: bool = False
    """Its streams are as its API has them: they go to clients of that API unread."""
    tool_choice: tuple[ChoiceForm, ...] = ()
    """The forms that it heeds."""
    thoughts: Literal["reasoning_content", "reasoning", ""] = ""
    """The field in which Chat Completions gives the model its past thoughts; empty: as the API has it."""
    constrain: tuple[str, ...] = ()
    """Ways to hold the model to a grammar, best first: names of `constraints`."""
    beside_tools: tuple[str, ...] = ()
    """Those of them that hold a model which the server shows its tools, too: what it then writes comes as text."""
    context: tuple[FactPath, ...] = ()
    """Where it tells the length of its context; the first that is there."""
    cuts: bool = False
    """A prompt that is longer than its context is cut without a word, and not refused."""
    template: FactPath = ""
    """Where it tells its chat template."""
    quirks: tuple[Quirk, ...] = ()


class Constraint(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A way to have a server hold its model to a grammar."""

    name: str
    body: str
    """JSON: the fields of a request for one odd word."""
    says: str
    """A regular expression that is found in the answer of a server that heeds it, and in no other's."""
    source: str


class _File(Struct, frozen=True, forbid_unknown_fields=True):
    server: tuple[ServerKind, ...]
    constraint: tuple[Constraint, ...] = ()


def read(data: bytes) -> _File:
    """The rows of a TOML file, in its order.

    Raises: ConfigError: a field is unknown, missing or wrong.
    """
    try:
        return msgspec.toml.decode(data, type=_File)
    except msgspec.DecodeError as error:
        raise ConfigError(f"servers file: {error}") from error


@cache
def _file() -> _File:
    return read(resources.files(__package__).joinpath("servers.toml").read_bytes())


def server_kinds() -> tuple[ServerKind, ...]:
    """All kinds of servers."""
    return _file().server


def constraints() -> tuple[Constraint, ...]:
    """All ways to hold a model to a grammar."""
    return _file().constraint


def get(name: str) -> ServerKind:
    """The kind of this name.

    Raises: ConfigError: there is none; the message offers the nearest.
    """
    for kind in server_kinds():
        if kind.name == name:
            return kind
    known = [kind.name for kind in server_kinds()]
    raise ConfigError(f"unknown kind of server {quote(name)}{one_of(name, known, 'expected ')}")
