"""Explains each text that a model wrote in an exchange: what its pieces were read as, why, and what to change.

`dragoman replay --explain` prints this, and the console shows it.
"""

import itertools
from collections.abc import Iterator, Mapping
from typing import Final, Literal, NamedTuple

from dragoman.api.advice import AdviceTarget, ReadContext, advice
from dragoman.api.parse import explain
from dragoman.parsing.trace import Span
from dragoman.server.capture.load import LoadedCapture
from dragoman.server.capture.replay_backend import ReadSettings

OFFERED: Final = 8
"""Maximum number of tools that are listed."""


class ExplainedText(NamedTuple):
    """One text that a model wrote."""

    number: int
    """The backend call, from 1."""
    model_request: int
    """The request to the model within that call, from 1."""
    text: str
    read: ReadSettings | None
    """How the text is read; None: not known."""
    spans: tuple[Span, ...]
    advice: str
    """What to change, in one line."""

    @property
    def title(self) -> str:
        """The name of the text."""
        return f"text {self.number}{f', {self.model_request}' * (self.model_request > 1)}"

    @property
    def reader(self) -> str:
        """How the text is read, as a phrase."""
        return reader_phrase(self.read)


def explain_texts(capture: LoadedCapture, reads: Mapping[tuple[int, int], ReadSettings]) -> Iterator[ExplainedText]:
    """Yields the explanation of each text of a model.

    Args:
        capture: The exchange.
        reads: How each text was read, by the numbers of its backend call and of the request to the model.
    """
    is_cut = capture.json("summary.json").get("log", {}).get("finish") == "length"
    for number in range(1, capture.backend_call_count + 1):
        for count in range(1, capture.output_count(number) + 1):
            text = capture.files.get(f"{number}/text-{count}.txt", b"").decode()
            yield explain_text(number, count, text, reads.get((number, count)), is_cut=is_cut)


def explain_text(number: int, count: int, text: str, read: ReadSettings | None, *, is_cut: bool) -> ExplainedText:
    """Returns the explanation of one text.

    Args:
        number: The backend call, from 1.
        count: The request to the model within that call, from 1.
        text: The text.
        read: How it was read; None: not known.
        is_cut: Whether a limit ended it.
    """
    spans = explain(
        text,
        read.format if read and read.format else "auto",
        read.tools if read else None,
        finish_reason=_reason(is_cut),
        prompt_suffix=read.prompt_suffix if read else "",
        lenient=bool(read and read.format and read.lenient),
        new_id=map(str, itertools.count(1)).__next__,
    )
    where: AdviceTarget = "gateway" if read and read.format else "native"
    context = ReadContext(where, bool(read and read.tools), is_cut, read.prompt_suffix if read else "")
    return ExplainedText(number, count, text, read, spans, advice(spans, context))


def _reason(is_cut: bool) -> Literal["stop", "length"]:
    return "length" if is_cut else "stop"


def reader_phrase(read: ReadSettings | None) -> str:
    """Returns how a text is read, as a phrase."""
    if read is None or read.format is None:
        return "calls are read by the server; this is what it left as text, as format auto has it"
    offered = ", ".join(tool.name for tool in read.tools[:OFFERED]) + " …" * (len(read.tools) > OFFERED)
    tail = f", after {read.prompt_suffix!r} of the prompt" if read.prompt_suffix else ""
    return f"read as format {read.format.name}{', leniently' * read.lenient}{tail}; tools: {offered or 'none'}"
