"""What can be done with a captured exchange: replay it, save it as a test case, share it."""

import asyncio
from collections.abc import Iterator
from typing import Final

from dragoman import formats
from dragoman.api.case_file import TOOLS, FormatCase, parse_cases, show_events
from dragoman.console.exchange.lanes.build_lanes import ExchangeLanes, build_lanes, read_settings
from dragoman.console.exchange.lanes.model_output import model_outputs
from dragoman.console.exchange.views import ReplayStage
from dragoman.core.errors import ConfigError, RequestError
from dragoman.parsing.format import Format
from dragoman.server.capture import bundle
from dragoman.server.capture.diff import StageDiff, compare
from dragoman.server.capture.explanation import explain_text
from dragoman.server.capture.load import LoadedCapture
from dragoman.server.capture.replay import Replay
from dragoman.server.capture.replay_backend import ChunkMode, ReadSettings

MAX_DIFF_CHARS: Final = 50_000
"""Maximum length of the difference of a stage; the rest is left out, visibly."""
_KNOWN_TOOLS: Final = frozenset(tool.name for tool in TOOLS)


def replay(
    capture: LoadedCapture, chunking: ChunkMode, seed: int, previous: bytes | None
) -> tuple[list[ReplayStage], ExchangeLanes]:
    """Returns the stages of a replay, and its lanes. Runs an event loop, so call it in a thread.

    Args:
        capture: The exchange.
        chunking: How the model's output is split into chunks.
        seed: The seed of random chunks.
        previous: The body of the previous request of the conversation.

    Raises:
        ConfigError: The capture cannot be replayed.
    """
    replayed = Replay(capture, chunking, seed)
    try:
        files = asyncio.run(replayed.answered())
    except ImportError as error:
        raise ConfigError(f"expected the packages of the captured backend, got an error: {error}") from None
    now = LoadedCapture(capture.name, files)
    stages = [_stage(stage) for stage in compare(capture, now, rechunked=chunking != "recorded")]
    return stages, build_lanes(now, previous, replayed.read_of)


def _stage(stage: StageDiff) -> ReplayStage:
    diff = "\n".join(stage.difference)
    if (rest := len(diff) - MAX_DIFF_CHARS) > 0:
        diff = f"{diff[:MAX_DIFF_CHARS]}\n… {rest:,} more characters"
    return ReplayStage(name=stage.name, same=not stage.difference, diff=diff)


def redacted_bundle(capture: LoadedCapture) -> bytes:
    """Returns the capture as a zip archive without its content. Runs an event loop, so call it in a thread.

    Args:
        capture: The exchange.

    Raises:
        ConfigError: The capture cannot be replayed.
    """
    return bundle.zip_bundle(asyncio.run(bundle.anonymize(capture)).files)


def case_file(capture: LoadedCapture) -> tuple[str, str]:
    """Returns the name of a format, and the texts of the model as a case file of it.

    Runs an event loop, so call it in a thread.

    Args:
        capture: The exchange.

    Raises:
        RequestError: The exchange has no text of a model, or one that a case file cannot contain.
    """
    reads = read_settings(capture)
    outputs = [output for output in model_outputs(capture) if output.text]
    if not outputs:
        raise RequestError("expected an exchange in which a model wrote text, got one without any")
    is_cut = capture.json("summary.json").get("log", {}).get("finish") == "length"
    format: Format | None = None
    texts = []
    for output in outputs:
        read = reads.get((output.number, output.model_request))
        own = (read.format if read else None) or formats.get("auto")
        format = format or own
        explained = explain_text(output.number, output.model_request, output.text, read, is_cut=is_cut)
        title = f"{capture.name.rpartition('-')[2]}, {explained.title}: {explained.reader}"
        if own is format:
            texts.append(_case_text(FormatCase(own, title, output.text, [], _options(read, is_cut=is_cut))))
    assert format is not None
    return format.name, "\n".join(texts)


def _options(read: ReadSettings | None, *, is_cut: bool) -> dict[str, str]:
    """Returns the options of a case: how its text is read."""
    options: dict[str, str] = {}
    offered = read.tools if read else ()
    if not {tool.name for tool in offered} <= _KNOWN_TOOLS or not offered:
        options["tools"] = "any"
    if is_cut:
        options["reason"] = "length"
    if read and read.prompt_suffix:
        options["tail"] = read.prompt_suffix.replace("\n", "\\n")
    if read and read.format and read.lenient:
        options["lenient"] = ""
    return options


def _case_text(case: FormatCase) -> str:
    """Returns a case as the text of a file.

    Raises:
        RequestError: It cannot be read again, as the text has the marks of such a file.
    """
    expected = show_events(case.read([case.text]), ids=False)
    text = "\n".join([*_lines(case), "---", *expected, ""])
    [parsed, *more] = parse_cases(text, case.call_format)
    if more or (parsed.text, parsed.options, parsed.expected) != (case.text, case.options, expected):
        raise RequestError(
            "expected a text that a case file can contain, got one with a line that begins with # or ---"
        )
    return text


def _lines(case: FormatCase) -> Iterator[str]:
    yield f"# {case.title}"
    for name, value in case.options.items():
        yield name if name == "lenient" else f"{name}: {value}"
    yield case.text
