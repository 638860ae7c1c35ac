"""CPU time of other parsers for the same calls in the same deltas, in nanoseconds per character.

Each is used as its documentation describes. A parser that cannot stream gets all the text so far with each delta, and
in another figure the complete text once. A parser that returns wrong arguments is measured and marked.

SMG is missing: its Python package has no interface to its parsers, which run in its gRPC router only.
"""

import gc
import importlib
import json
import logging
import sys
from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple, TypeAlias

from bench.figures import Figure
from bench.reader import call_text, kb, reader_call
from bench.samples import TOOLS, arguments, deltas
from bench.timing import Timing, compare
from dragoman import formats

Read: TypeAlias = Callable[[list[str]], Any]
"""Parses a completion in pieces with a new parser; returns its call's arguments, as JSON text or decoded."""

STEP: Final = 4
SLOW_NS: Final = 100_000_000
"""A parser that takes longer is measured once, and not at the next size, as it is at least quadratic."""


class Rival(NamedTuple):
    """Another project's parser, for one of our formats."""

    name: str
    format: str
    read: Read
    streams: bool = True
    """Whether it returns events for each delta; only then it counts for our goal."""
    factor: int = 5
    """How many times as fast Dragoman should be."""


def measure(quick: bool) -> Iterator[Figure]:
    """Yields for each format the others, then Dragoman, whose goal is the fastest other divided by its factor."""
    rivals = list(_installed())
    gc.freeze()  # the packages have many objects, which each collection would visit
    slow: set[Rival] = set()
    for size in (200, 500) if quick else (10_000, 100_000):
        for format in dict.fromkeys(rival.format for rival in rivals):
            yield from _format(format, size, [r for r in rivals if r.format == format and r not in slow], slow)
    gc.unfreeze()


def _format(format: str, size: int, rivals: list[Rival], slow: set[Rival]) -> Iterator[Figure]:
    text = call_text(formats.get(format), size)
    pieces = deltas(text, STEP)
    ours = reader_call(formats.get(format), pieces)
    goals = []
    for rival in rivals:
        timing = _timing(rival, pieces, ours)
        if timing.best > SLOW_NS:
            slow.add(rival)
        if rival.streams:
            goals.append(timing.median / len(text) / rival.factor)
        wrong = "" if _is_right(rival.read(pieces[:]), size) else " (wrong result)"
        name = f"{rival.name}: {format} call, {kb(size)}{wrong}"
        yield Figure(name, timing.median / len(text), "ns/char", timing.best / len(text), timing.ratio, "dragoman")
    timing = compare(ours, ours, 5)
    goal = min(goals, default=None)
    yield Figure(
        f"dragoman: {format} call, {kb(size)}", timing.median / len(text), "ns/char", timing.best / len(text), goal=goal
    )


def _timing(rival: Rival, pieces: list[str], ours: Callable[[], object]) -> Timing:
    first = compare(lambda: rival.read(pieces), ours, 1)
    return first if first.best > SLOW_NS else compare(lambda: rival.read(pieces), ours, 5)


def _is_right(read: Any, size: int) -> bool:
    try:
        return bool((json.loads(read) if isinstance(read, str) else read) == json.loads(arguments(size)))
    except ValueError:
        return False


def _installed() -> Iterator[Rival]:
    """Yields the parsers whose packages are installed."""
    logging.getLogger("llm_router_utils").setLevel(logging.CRITICAL)  # it logs every piece of incomplete JSON
    for package, rivals in (
        ("llm_router_utils", _sglang),
        ("transformers", _transformers),
        ("agent_tool_parser", _agent),
    ):
        try:
            importlib.import_module(package)
        except ImportError as e:
            print(f"{package} is omitted: {e}; run: pip install --no-deps --group field", file=sys.stderr)
        else:
            yield from rivals()


SGLANG: Final = {
    "hermes": "hermes",
    "qwen3_xml": "qwen3_coder",
    "mistral": "mistral",
    "llama3_json": "llama3",
    "deepseek_v32": "deepseekv32",
    "glm": "glm45",
    "kimi_k2": "kimi_k2",
    "gemma4": "gemma4",
    "lfm2": "lfm2",
}
"""SGLang's detector by our format. Its pythonic one is omitted, as it takes minutes for 10 KB."""


def _sglang() -> Iterator[Rival]:
    """Yields SGLang's detectors, which `llm-router-utils` contains without the engine."""
    root = "llm_router_utils.sglang.srt"
    parser = importlib.import_module(f"{root}.function_call.function_call_parser").FunctionCallParser
    tool = importlib.import_module(f"{root}.entrypoints.openai.protocol").Tool
    tools = [tool(type="function", function={"name": t.name, "parameters": json.loads(t.parameters)}) for t in TOOLS]

    def reads(detector: str) -> Read:
        def read(pieces: list[str]) -> str:
            reader = parser(tools, detector)
            calls = [call for piece in pieces for call in reader.parse_stream_chunk(piece)[1]]
            return "".join(call.parameters for call in [*calls, *reader.parse_stream_end()[1]])

        return read

    for format, detector in SGLANG.items():
        yield Rival("SGLang", format, reads(detector), factor=100 if format == "hermes" else 5)


_TEMPLATES: Final[dict[str, dict[str, Any]]] = {
    "hermes": {"open": "<tool_call>", "close": "</tool_call>", "content": "json"},
    "qwen3_xml": {
        "open_pattern": r"<tool_call>\s*<function=(?P<name>[^>]+)>\n",
        "close_pattern": r"</function>\s*</tool_call>",
        "content": "xml-inline",
        "content_args": {"tag_pattern": r"<parameter=(?P<key>[^>]+)>\n(?P<value>.*?)\n</parameter>"},
        "transform": {"arguments": "{content}"},
    },
}
"""Response templates for transformers (its page "Response Parsing", 2026-11)."""


def _transformers() -> Iterator[Rival]:
    """Yields its template parser, which returns a call's text raw and its arguments at the end."""
    parser = importlib.import_module("transformers.utils.chat_parsing").ResponseParser

    def reads(template: dict[str, Any]) -> Read:
        def read(pieces: list[str]) -> Any:
            reader = parser(template, prefix="")
            events = [event for piece in pieces for event in reader.feed(piece)]
            message, last = reader.finalize()
            assert events or last, "the parser must return events"
            return message["tool_calls"][0]["arguments"]

        return read

    for format, field in _TEMPLATES.items():
        fields = {"tool_calls": {**field, "repeats": True}, "content": {"close": "<|im_end|>"}}
        yield Rival("transformers", format, reads({"start_anchor": "<|im_start|>assistant\n", "fields": fields}))


def _agent() -> Iterator[Rival]:
    """Yields a Rust parser of complete responses."""
    parse = importlib.import_module("agent_tool_parser").try_parse_tool_calls

    def parse_once(pieces: list[str]) -> Any:
        return parse("".join(pieces))[0].args

    def parse_each_time(pieces: list[str]) -> Any:
        calls, text = [], ""
        for piece in pieces:
            text += piece
            calls = parse(text)
        return calls[0].args

    for format in ("hermes", "llama3_json"):
        yield Rival("agent-tool-parser, on each delta", format, parse_each_time)
        yield Rival("agent-tool-parser, once at the end", format, parse_once, streams=False)
