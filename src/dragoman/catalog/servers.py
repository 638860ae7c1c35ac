"""Facts about server types: the rows of `servers.toml`.

The place of a fact in a server's responses is written as

    host                                        of its URL
    /v1/models@server                           the header of that response
    /#name                                      the member of that response's JSON
    /props#default_generation_settings/n_ctx    a member within a member
    /v1/models#data/{model}/max_model_len       of the list item whose id, key or name is the model's
    POST /api/show#model_info/*.context_length  of the response to {"model": "the model's"}; `*` matches anything
"""

import re
from functools import cache
from importlib import resources
from typing import Literal, TypeAlias

import msgspec
from msgspec import Struct

from dragoman.core.errors import ConfigError, one_of, quote

FactPath: TypeAlias = str
"""The place of a fact in a server's responses, as above."""
ChoiceForm: TypeAlias = Literal["auto", "required", "named", "none"]


class ServerSign(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A fact by which a server type is recognized."""

    at: FactPath
    pattern: str = msgspec.field(default="", name="is")
    """A regular expression to find in the fact; empty: anything."""
    also: tuple["ServerSign", ...] = ()
    """Further signs that are required, because this one alone is too common."""

    def matches(self, body: str) -> bool:
        """Returns whether the text found at this place is this sign."""
        return re.search(self.pattern, body) is not None


class Quirk(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Something that users should know about a server type."""

    description: str
    source: str


class Provider(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A server type, such as vLLM or Ollama."""

    name: str
    title: str
    """The name as users know it."""
    source: str
    """Where the facts of this row come from, with the date."""
    port: int = 0
    """The default port; 0: none, because it is a hosted service."""
    api: str = "openai_chat"
    """The API to use with it."""
    signs: tuple[ServerSign, ...]
    """How it is recognized: any one of these is enough."""
    version: FactPath = ""
    schema_profile: str = ""
    """Whose restrictions of JSON Schema apply (schema/targets.py); empty: those of its API."""
    native: Literal["trusted", "measured"] = "measured"
    """Whether its own tool calls can be trusted for any model, or have to be measured."""
    passthrough: bool = False
    """Whether its streams conform to its API, so that they are passed through to clients of that API."""
    tool_choice: tuple[ChoiceForm, ...] = ()
    """The forms of `tool_choice` that it supports."""
    none_leaves_calls: bool = False
    """Whether it still shows the model its tools with `tool_choice` `none`, and leaves calls in the text."""
    reasoning_field: Literal["reasoning_content", "reasoning", ""] = ""
    """The field for past reasoning in Chat Completions; empty: as the API has it."""
    constrain: tuple[str, ...] = ()
    """Methods of constrained decoding, best first: names of `constraints`."""
    beside_tools: tuple[str, ...] = ()
    """Those of them that also work when the server shows the model its tools; the reply is then text."""
    context: tuple[FactPath, ...] = ()
    """Where it reports the length of its context; the first place that exists counts."""
    cuts: bool = False
    """Whether a prompt longer than its context is truncated without an error."""
    template: FactPath = ""
    """Where it reports its chat template."""
    no_vendor_tools: bool = False
    """Whether it does not run the tools of its API's vendor, such as web search, and does not reject them."""
    quirks: tuple[Quirk, ...] = ()


class ConstraintMethod(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A method to make a server constrain its model to a grammar."""

    name: str
    body: str
    """JSON: the fields of a request that constrains the reply to one unusual word."""
    answer_pattern: str
    """A regular expression that matches only responses of a server that supports the method."""
    source: str


class _File(Struct, frozen=True, forbid_unknown_fields=True):
    server: tuple[Provider, ...]
    constraint: tuple[ConstraintMethod, ...] = ()


def read(data: bytes) -> _File:
    """Decodes the rows of a TOML file, in their order.

    Raises:
        ConfigError: A field is unknown, missing or invalid.
    """
    try:
        return msgspec.toml.decode(data, type=_File)
    except msgspec.DecodeError as error:
        raise ConfigError(f"servers file: {error}") from error


@cache
def _file() -> _File:
    return read(resources.files(__package__).joinpath("servers.toml").read_bytes())


def providers() -> tuple[Provider, ...]:
    """Returns all server types."""
    return _file().server


def constraints() -> tuple[ConstraintMethod, ...]:
    """Returns all methods of constrained decoding."""
    return _file().constraint


def get(name: str) -> Provider:
    """Returns the server type with this name.

    Raises:
        ConfigError: There is none; the message has the nearest name.
    """
    for provider in providers():
        if provider.name == name:
            return provider
    known = [provider.name for provider in providers()]
    raise ConfigError(f"unknown provider {quote(name)}{one_of(name, known, 'expected ')}")
