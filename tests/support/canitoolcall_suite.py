"""The fixtures of canitoolcall: the format of each, and what Dragoman parses from it."""

import re
from collections.abc import Iterable, Iterator
from functools import cache
from typing import Any

from canitoolcall.chunking import ChunkStrategy, split
from canitoolcall.fixtures import Fixture, load_families
from canitoolcall.results import ParsedToolCall, ParseResult

from dragoman import ToolCallReader, formats
from dragoman.core import events as ev
from dragoman.parsing.reader_options import ReaderBuffering

FORMATS = (
    ("deepseek", "x-deepseek-v3", "deepseek_v3"),
    ("deepseek", "x-deepseek-v31", "deepseek_v31"),
    ("deepseek", "x-deepseek-v32", "deepseek_v32"),
    ("deepseek", "x-deepseek-v4", "deepseek_v4"),
    ("deepseek", "x-deepseek-v41", "deepseek_v41"),
    ("gemma4", "", "gemma4"),
    ("glm", "", "glm"),
    ("gpt-oss", "", "harmony"),
    ("kimi", "x-kimi-k2", "kimi_k2"),
    ("kimi", "x-kimi-k3", "kimi_k3"),
    ("llama", "x-llama-json", "llama3_json"),
    ("llama", "x-llama-pythonic", "pythonic"),
    ("mistral", "x-v3-json-array", "mistral_v3"),
    ("mistral", "", "mistral"),
    ("qwen3-hermes", "", "hermes"),
    ("qwen3-xml", "", "qwen3_xml"),
)
"""Family, tag ("": any), format; the first match counts."""


def format_of(fixture: Fixture) -> str:
    return next(name for family, tag, name in FORMATS if family == fixture.family and (not tag or tag in fixture.tags))


@cache
def families() -> dict[str, Any]:
    loaded = load_families()
    return dict(loaded) if isinstance(loaded, dict) else {family.slug: family for family in loaded}


def prompt_suffix(fixture: Fixture) -> str:
    """The start of the reply that the prompt already contains."""
    thoughts = formats.get(format_of(fixture)).reasoning_tags or {"<think>": "</think>"}
    prompt, text = fixture.generation_prompt, fixture.raw_output
    if prompt is None:  # then the text tells it
        opened = [
            o for o, c in thoughts.items() if o not in text and (c in text or (fixture.thinking and fixture.truncated))
        ]
        return "".join(opened[:1])
    for opener, closer in thoughts.items():
        _, found, behind = prompt.rpartition(opener)
        if found and closer not in behind:
            return found + behind
    return prompt if "<|open|>" in prompt else ""


def events(fixture: Fixture, pieces: Iterable[str], buffering: ReaderBuffering = "off") -> list[ev.AnyEvent]:
    ids = iter(range(1000))
    reader = ToolCallReader(
        format_of(fixture),
        fixture.tools,
        prompt_suffix=prompt_suffix(fixture),
        buffering=buffering,
        new_id=lambda: str(next(ids)),
    )
    out = [event for piece in pieces for event in reader.feed(piece)]
    return out + reader.close("length" if fixture.truncated else "stop")


def result(out: Iterable[ev.AnyEvent]) -> ParseResult:
    """Collects the events into the result that a client gets."""
    said = {ev.TextDelta: "", ev.ReasoningDelta: ""}
    calls: dict[int, tuple[str, str]] = {}
    for event in out:
        match event:
            case ev.TextDelta(text) | ev.ReasoningDelta(text):
                said[type(event)] += text
            case ev.ToolCallStart(index, _, name):
                calls[index] = name, ""
            case ev.ToolCallDelta(index, text):
                calls[index] = calls[index][0], calls[index][1] + text
            case ev.ToolCallIncomplete(index):
                del calls[index]
    return ParseResult(
        content=said[ev.TextDelta] or None,
        reasoning_content=said[ev.ReasoningDelta] or None,
        tool_calls=tuple(ParsedToolCall(name, arguments) for name, arguments in calls.values()),
    )


def pieces(fixture: Fixture, strategy: ChunkStrategy) -> Iterator[str]:
    special = sorted(families()[fixture.family].markers, key=len, reverse=True)
    token = "|".join([*map(re.escape, special), r" ?\w{1,6}", r"\s+", r"[^\w\s]{1,2}?"])
    units = list(fixture.raw_output) if strategy.kind == "char" else re.findall(token, fixture.raw_output)
    assert "".join(units) == fixture.raw_output
    yield from ("".join(group) for group in split(units, strategy, frozenset(special)))
