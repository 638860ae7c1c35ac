"""Continues a text that a model of another process began: it ends the prompt, and begins the output."""

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from typing import Any, Final, Protocol

from dragoman.backends.embedded.engine_output import Done, Output, Progress, TokenText
from dragoman.core.backend import OpeningText

GRAMMAR_FIELDS: Final = ("grammar", "grammar_lazy", "grammar_triggers", "preserved_tokens")


class CompletesPrompts(Protocol):
    """What a response and a question need of the engine."""

    def complete(self, body: Mapping[str, Any], *, admitted: bool = False) -> AsyncGenerator[Output, None]:
        """Yields the output of one completion; see `LlamaProcess.complete`."""


def continued(
    engine: CompletesPrompts, body: Mapping[str, Any], opening: OpeningText | None, *, admitted: bool
) -> AsyncGenerator[Output, None]:
    """Returns the output of a completion, of which a part may have been written already.

    Args:
        engine: the engine.
        body: the request; see `LlamaProcess.complete`.
        opening: the part; None: the engine writes all.
        admitted: see there.
    """
    if opening is None:
        return engine.complete(body, admitted=admitted)
    return _continued(engine, body, opening)


async def _continued(
    engine: CompletesPrompts, body: Mapping[str, Any], opening: OpeningText
) -> AsyncGenerator[Output, None]:
    left = body["n_predict"] - opening.tokens
    if left <= 0:
        yield Progress(0, 0)
        yield TokenText(opening.text)
        yield Done("length", 0, 0)
        return
    # A grammar begins with the response; the engine cannot be told how far it has come.
    rest = {name: value for name, value in body.items() if name not in GRAMMAR_FIELDS}
    rest |= {"prompt": extended(body["prompt"], opening.text), "n_predict": left}
    is_written = False
    async with aclosing(engine.complete(rest)) as outputs:
        async for output in outputs:
            if isinstance(output, Progress):
                yield Progress(max(output.total - opening.tokens, 0), max(output.done - opening.tokens, 0))
                continue
            if not is_written:
                is_written = True
                yield TokenText(opening.text)
            yield output


def extended(prompt: str | Sequence[str], text: str) -> str | list[str]:
    """Returns the prompt, which is cut at its images, with the text at its end.

    Args:
        prompt: the prompt; several segments: cut at its images.
        text: the text.
    """
    return prompt + text if isinstance(prompt, str) else [*prompt[:-1], prompt[-1] + text]
