"""Reads and writes the token counts of a Responses reply."""

from typing import Final

from dragoman.core.messages import Usage
from dragoman.dialects.openai_responses.request_reader import NAME
from dragoman.text import lenient_values
from dragoman.text.json_cursor import Fields
from dragoman.wire.detail_fields import unmodelled_counts, with_unmodelled_counts

_COUNTS: Final = {
    "input_tokens": (),
    "output_tokens": (),
    "total_tokens": (),
    "input_tokens_details": ("cached_tokens", "cache_write_tokens"),
    "output_tokens_details": ("reasoning_tokens",),
}
"""Fields of usage that `Usage` models."""


def usage_fields(usage: Usage) -> dict[str, object]:
    """Returns the field `usage` of a response object."""
    counts: dict[str, object] = {
        "input_tokens": usage.input_tokens,
        "input_tokens_details": {
            "cached_tokens": usage.cached_input_tokens,
            "cache_write_tokens": usage.cache_write_tokens,
        },
        "output_tokens": usage.output_tokens,
        "output_tokens_details": {"reasoning_tokens": usage.reasoning_tokens},
        "total_tokens": usage.input_tokens + usage.output_tokens,
    }
    return with_unmodelled_counts(counts, usage, NAME)


def read_usage(counts: Fields) -> Usage:
    """Returns the token counts in the field `usage` of a response object."""
    extra = unmodelled_counts(counts, _COUNTS)
    return Usage(
        input_tokens=lenient_values.count_at(counts, "input_tokens"),
        output_tokens=lenient_values.count_at(counts, "output_tokens"),
        cached_input_tokens=lenient_values.count_at(counts, "input_tokens_details", "cached_tokens"),
        cache_write_tokens=lenient_values.count_at(counts, "input_tokens_details", "cache_write_tokens"),
        reasoning_tokens=lenient_values.count_at(counts, "output_tokens_details", "reasoning_tokens"),
        extra=extra,
        dialect=NAME if extra else "",
    )
