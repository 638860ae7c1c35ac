"""Reports the progress of a prompt that a question reads for the response."""

import time
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing
from typing import Any

from dragoman.backends.embedded.continued import CompletesPrompts
from dragoman.backends.embedded.engine_output import Output, Progress
from dragoman.core.backend import ExchangeContext


class ReportingEngine:
    """An engine whose completions are reported as those of a response."""

    def __init__(self, engine: CompletesPrompts, report: Callable[[int, int], None], context: ExchangeContext) -> None:
        """
        Args:
            engine: the engine.
            report: receives the number of the prompt's tokens, and how many of them were read.
            context: the exchange, for the time in which the prompt was read.
        """
        self._engine, self._report, self._attempts = engine, report, context.attempts

    async def complete(self, body: Mapping[str, Any], *, admitted: bool = False) -> AsyncGenerator[Output, None]:
        """Yields the output of one completion."""
        asked_s, reading_s = time.perf_counter(), 0.0
        async with aclosing(self._engine.complete(body, admitted=admitted)) as outputs:
            async for output in outputs:
                if isinstance(output, Progress):
                    if not reading_s:  # the first report precedes the work
                        reading_s = time.perf_counter()
                        self._attempts.queue(reading_s - asked_s)
                    self._report(output.total, output.done)
                yield output
        if reading_s:
            self._attempts.prompt_s = (self._attempts.prompt_s or 0.0) + time.perf_counter() - reading_s
