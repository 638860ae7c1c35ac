"""Formats that the settings define: calls between two markers, with their arguments as one JSON object.

[formats.mine]                       <call>{"tool": "get_weather", "args": {"city": "Paris"}}</call>
opener = "<call>"
closer = "</call>"
name_key = "tool"
arguments_key = "args"

[formats.other]                      @@tool get_weather
opener = "@@tool "                   {"city": "Paris"}
name_end = "\\n"                      @@end
closer = "\\n@@end"
"""

import re
from typing import Final

from dragoman.core.errors import ConfigError, quote
from dragoman.parsing.define_format import json_format
from dragoman.parsing.format import Format
from dragoman.parsing.markup import Markup
from dragoman.parsing.shapes.json_block import json_calls_format
from dragoman.parsing.shapes.json_object import JsonCallKeys
from dragoman.parsing.shapes.name_then_json import CallHead, NameThenJson
from dragoman.parsing.tag_format_config import TagFormatConfig
from dragoman.parsing.tool_markup import ToolResultMarkup
from dragoman.text.scanner import Parser, Scanner, markers

MIN_CHARS: Final = 2
"""Minimum length of a marker without white space around it; a shorter one occurs in ordinary text."""
_NAME: Final = re.compile(r"[A-Za-z0-9][\w.-]{0,63}", re.ASCII)
_SOURCE: Final = "the settings"
_FAMILIES: Final = "those that name it as `call_format`"


def tag_format(name: str, config: TagFormatConfig, where: str) -> Format:
    """Returns the format that these settings describe.

    Args:
        name: The name of the format.
        config: The settings.
        where: Where they are, for messages, such as `formats.mine`.

    Raises:
        ConfigError: A marker is missing, would occur in ordinary text, or cannot be told from another one.
    """
    _validate(name, config, where)
    opened, closed = config.opener, config.closer
    reasoning = {config.reasoning[0].strip(): config.reasoning[1].strip()} if config.reasoning else dict[str, str]()
    wrapper = (config.reasoning[0], config.reasoning[1]) if config.reasoning else ("", "")
    result = ToolResultMarkup(config.result[0], config.result[1])
    if not config.name_end:
        return json_calls_format(
            name=name,
            model_families=_FAMILIES,
            source=_SOURCE,
            blocks={opened.strip(): closed.strip()},
            keys=JsonCallKeys(name=(config.name_key,), arguments=(config.arguments_key,), late_id=False),
            call=(opened, closed),
            separator="\n",
            reasoning_tags=reasoning,
            reasoning_wrapper=wrapper,
            result=result,
            opener=opened,
        )
    start, ends, end = opened.strip("\n"), markers(config.name_end), closed.strip()

    def read_head(s: Scanner, _: str) -> Parser[CallHead | None]:
        found = yield from s.field(ends)
        return CallHead(found[0].strip()) if found else None

    closers = (end,) if end else ()
    return json_format(
        name=name,
        model_families=_FAMILIES,
        source=_SOURCE,
        read=Markup(calls={start: NameThenJson(read_head, closers).read}, reasoning_tags=reasoning, closers=closers),
        call_wrapper=lambda tool, _: (f"{opened}{tool}{config.name_end}", closed),
        opener=opened,
        reasoning_wrapper=wrapper,
        markers=tuple(filter(None, (start.strip(), end, *reasoning, *reasoning.values()))),
        result=result,
    )


def _validate(name: str, config: TagFormatConfig, where: str) -> None:
    if not _NAME.fullmatch(name):
        raise ConfigError(f"expected a name of letters, digits, '_', '.' and '-', got {quote(name)} - at {where}")
    _validate_marker(config.opener, f"{where}.opener")
    opener, closer = config.opener.strip(), config.closer.strip()
    if opener[-1] in "{[" or opener[0] in '{"':
        raise ConfigError(f"expected a marker around the JSON, got {quote(config.opener)} - at {where}.opener")
    if config.closer:
        _validate_marker(config.closer, f"{where}.closer")
    if closer and closer[0] in '{}],;"':
        raise ConfigError(f"expected a marker around the JSON, got {quote(config.closer)} - at {where}.closer")
    if closer and opener.startswith(closer):
        raise ConfigError(f"expected a closer with which no opener begins, got {quote(closer)} - at {where}.closer")
    if config.name_end and (config.name_end[0].isalnum() or config.name_end[0] in "_-."):
        raise ConfigError(
            f"expected a text that cannot be part of a tool's name, got {quote(config.name_end)} - at {where}.name_end"
        )
    if config.name_end.endswith(("{", "[", '"')):
        raise ConfigError(f"expected a text before the JSON object, got {quote(config.name_end)} - at {where}.name_end")
    if not config.name_key or config.name_key == config.arguments_key or not config.arguments_key:
        got = f"{quote(config.name_key)} and {quote(config.arguments_key)}"
        raise ConfigError(f"expected two different keys, got {got} - at {where}.name_key")
    _validate_pair(config.reasoning, f"{where}.reasoning", optional=True)
    _validate_pair(config.result, f"{where}.result", optional=False)
    if config.reasoning and opener in (each.strip() for each in config.reasoning):
        raise ConfigError(f"expected other markers than {quote(opener)}, which opens calls - at {where}.reasoning")


def _validate_marker(mark: str, where: str) -> None:
    text = mark.strip()
    if len(text) < MIN_CHARS or all(each.isalnum() or each.isspace() for each in text):
        raise ConfigError(
            f"expected a marker of at least {MIN_CHARS} characters, one of them no letter or digit, such as '<call>', "
            f"got {quote(mark)} - at {where}"
        )


def _validate_pair(pair: tuple[str, ...], where: str, *, optional: bool) -> None:
    if not pair and optional:
        return
    if len(pair) != 2 or pair[0].strip() == pair[1].strip():
        raise ConfigError(f"expected two different texts, got {list(pair)} - at {where}")
    for mark in pair:
        _validate_marker(mark.partition("{")[0] if mark is pair[0] else mark, where)
