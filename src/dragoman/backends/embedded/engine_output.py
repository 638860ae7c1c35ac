"""The messages of the worker process about one completion, decoded to outputs and errors."""

from collections.abc import Mapping
from typing import Any, Final, NamedTuple, TypeAlias

from dragoman.core.errors import ContextOverflowError, DragomanError, RequestError, UpstreamError

_TOO_LONG: Final = "too large to process"
"""In the message of an error for a text of which no embedding can be made; its code is that of the engine's faults."""


class Progress(NamedTuple):
    """Prompt tokens read so far; the first report precedes any work, and counts the cached ones."""

    total: int
    done: int


class TokenText(NamedTuple):
    """More of the reply's text, about one token."""

    text: str


class TokenProbabilities(NamedTuple):
    """The likeliest tokens at one position, of a completion that asks for them (`n_probs`)."""

    by_text: Mapping[str, float]


class Done(NamedTuple):
    """The end of the reply."""

    finish: str
    """`stop` or `length`."""
    output_tokens: int
    cached_tokens: int


Output: TypeAlias = Progress | TokenText | TokenProbabilities | Done


def read_outputs(message: dict[str, Any], context_window: int) -> list[Output]:
    """Returns the outputs of one message.

    Args:
        message: a line of the worker process, see `worker`.
        context_window: the context of the engine, for the error that a prompt exceeds it.

    Raises:
        DragomanError: the engine rejected the request, or it broke off.
    """
    if "error" in message:
        raise read_error(message["error"], context_window)
    if "total" in message:
        return [Progress(message["total"], message["done"])]
    outputs: list[Output] = [TokenProbabilities(message["probabilities"])] if "probabilities" in message else []
    if message.get("text"):
        outputs.append(TokenText(message["text"]))
    if "finish" in message:
        usage = message["usage"]
        cached = usage.get("prompt_tokens_details", {}).get("cached_tokens", 0)
        outputs.append(Done(message["finish"], usage.get("completion_tokens", 0), cached))
    return outputs


def read_error(error: dict[str, Any], context_window: int) -> DragomanError:
    """Returns the error that the child reported.

    Args:
        error: the error object of the message.
        context_window: the context of the engine, if the child does not report it.
    """
    if error.get("type") == "exceed_context_size_error":
        return ContextOverflowError(error.get("n_prompt_tokens", 0), error.get("n_ctx", context_window))
    if _TOO_LONG in str(error.get("message")):
        return RequestError(f"expected texts of at most {context_window} tokens each, got a longer one", "input")
    if error.get("code") == 400:
        return RequestError(f"the embedded engine refused the request: {error.get('message')}")
    return UpstreamError(f"the embedded engine failed: {error.get('message')}", status=error.get("code"))
