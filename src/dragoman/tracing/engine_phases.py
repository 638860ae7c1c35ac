"""Spans of what the embedded engine does in one attempt, from the progress that it reports.

load                   the model waits for memory, or is loaded
read prompt            until the prompt is evaluated
decode                 until the end of the response
"""

import time

from opentelemetry.context import Context
from opentelemetry.trace import Span, Tracer
from opentelemetry.util.types import AttributeValue

from dragoman.core.backend import PromptProgress
from dragoman.tracing import conventions as conv


class EnginePhases:
    """The phases of one attempt, one at a time."""

    def __init__(self, tracer: Tracer, parent: Context) -> None:
        """
        Args:
            tracer: Begins the spans.
            parent: The context of the attempt's span.
        """
        self._tracer, self._parent = tracer, parent
        self._open: Span | None = None
        self._name = ""

    def on_progress(self, progress: PromptProgress) -> None:
        """The engine waits for something, or has evaluated a part of the prompt."""
        if progress.waits_for:
            self._enter("load")
        elif progress.total and self._name != "decode":
            self._enter("read prompt", {conv.PROMPT_TOKENS: progress.total})

    def on_output(self) -> None:
        """The model has written its first token."""
        self._enter("decode")

    def end(self, at_ns: int) -> None:
        """The attempt ended at this time, in nanoseconds since 1970."""
        if self._open is not None:
            self._open.end(at_ns)
        self._open, self._name = None, ""

    def _enter(self, name: str, attributes: dict[str, AttributeValue] | None = None) -> None:
        if name == self._name:
            return
        self.end(time.time_ns())
        self._open, self._name = self._tracer.start_span(name, self._parent, attributes=attributes), name
