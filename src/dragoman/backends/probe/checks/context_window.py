"""How long a conversation may be: where its kind tells it, else in the fields that several servers have."""

from typing import Final

from dragoman.backends.probe.context import Subject
from dragoman.backends.probe.report import Finding
from dragoman.core.errors import ContextOverflowError

WHAT = "context"
_USUAL: Final = tuple(
    f"/v1/models#data/{{model}}/{field}"
    for field in ("max_model_len", "context_length", "context_window", "max_context_length", "max_input_tokens")
)


async def measure(subject: Subject) -> Finding:
    """Last, as an answer before may have told it too."""
    places = (*(subject.kind.context if subject.kind else ()), *_USUAL)
    if tokens := await subject.telling.number(places, subject.model):
        return Finding(WHAT, "yes", f"{tokens} tokens", {"tokens": tokens})
    for heard in subject.asker.heard:
        if isinstance(heard.error, ContextOverflowError) and heard.error.limit_tokens:
            tokens = heard.error.limit_tokens
            return Finding(WHAT, "yes", f"{tokens} tokens, as its error says", {"tokens": tokens})
    return Finding(WHAT, "unknown", "not told")
