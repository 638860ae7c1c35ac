"""Writes the token counts of a Responses reply."""

from dragoman.core.messages import Usage
from dragoman.dialects.openai_responses.request_reader import NAME
from dragoman.wire.detail_fields import with_unmodelled_counts


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
