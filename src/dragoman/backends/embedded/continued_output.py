"""Continues a completion whose engine ended in the middle of it, once the engine runs again."""

from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing
from typing import Any

from dragoman.backends.continuation import MAX_CONTINUATIONS
from dragoman.backends.embedded.continued import extended
from dragoman.backends.embedded.engine_output import Done, Output, TokenText
from dragoman.core.errors import BackendUnavailableError, DragomanError, UpstreamTimeoutError


async def continued_output(
    complete: Callable[[Mapping[str, Any], bool], AsyncGenerator[Output, None]],
    body: Mapping[str, Any],
    unconstrained: Callable[[str], Mapping[str, Any]],
    on_failure: Callable[[DragomanError], None],
    *,
    admitted: bool,
) -> AsyncGenerator[Output, None]:
    """Yields the output of a completion, with the text of a failed engine as the end of its next prompt.

    The request is sent `MAX_CONTINUATIONS` times more at most, and only one time without new text: it may be what
    ends the engine.

    Args:
        complete: Starts a completion, given the body and whether it is admitted; see `LlamaProcess.complete`.
        body: The request.
        unconstrained: Returns the body for continuing a text, without a prompt.
        on_failure: Called with each error after which the text is continued.
        admitted: Whether the completion belongs to a response that has begun.

    Raises:
        DragomanError: See `LlamaProcess.complete`.
    """
    texts: list[str] = []
    sent, left = body, MAX_CONTINUATIONS
    while True:
        before, has_begun = len(texts), False
        try:
            async with aclosing(_recorded(complete(sent, admitted), texts)) as outputs:
                async for output in outputs:
                    has_begun = True
                    yield output
            return
        except (BackendUnavailableError, UpstreamTimeoutError) as error:
            if not (has_begun and left):
                raise
            failed = error
        left = left - 1 if len(texts) > before else min(left - 1, 0)
        on_failure(failed)
        text, limit = "".join(texts), body["n_predict"] - len(texts)
        if limit <= 0:
            yield Done("length", len(texts), 0)
            return
        admitted = True
        sent = {**unconstrained(text), "prompt": extended(body["prompt"], text), "n_predict": limit}


async def _recorded(outputs: AsyncGenerator[Output, None], texts: list[str]) -> AsyncGenerator[Output, None]:
    """Yields the output, with token counts of the whole text, and adds its pieces to the text."""
    before = len(texts)
    async with aclosing(outputs):
        async for output in outputs:
            if type(output) is TokenText:
                texts.append(output.text)
            elif type(output) is Done:
                output = output._replace(output_tokens=output.output_tokens + before)
            yield output
