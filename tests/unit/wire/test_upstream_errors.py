"""Context overflow messages of upstream servers, and the errors that clients get for them."""

import json

import pytest

from dragoman import dialects
from dragoman.core.errors import ContextOverflowError, UpstreamError
from dragoman.wire.upstream_errors import error_from_response

PROMPT = [
    "prompt is too long: 5000 tokens > 4096 maximum",
    "This model's maximum context length is 4096 tokens. However, your messages resulted in 5000 tokens.",
    "This endpoint's maximum context length is 4096 tokens. However, you requested about 5000 tokens",
    "This model's maximum context length is 4096 tokens. However, you requested 5100 tokens (5000 in the messages, "
    "100 in the completion).",
    "This model's maximum context length is 4096 tokens, however you requested 5005 tokens (5000 in your prompt; 5 for "
    "the completion).",
    "This model's maximum context length is 4096 tokens. However, you requested 0 output tokens and your prompt "
    "contains at least 5000 input tokens, for a total of at least 5000 tokens.",
    "request (5000 tokens) exceeds the available context size (4096 tokens), try increasing it",
    "Trying to keep the first 5000 tokens when context the overflows. However, the model is loaded with context length "
    "of only 4096 tokens, which is not enough.",
    "The input (5000 tokens) is longer than the model's context length (4096 tokens).",
    "The decoder prompt (length 5000) is longer than the maximum model length of 4096. Make sure",
    "This model's maximum prompt length is 4096 but the request contains 5000 tokens.",
    "The input token count (5000) exceeds the maximum number of tokens allowed (4096).",
    "Prompt contains 5000 tokens and 0 draft tokens, too large for model with 4096 maximum context length",
    "Input length (5000) exceeds model's maximum context length (4096).",
    "Cannot truncate prompt with n_keep (5000) >= n_ctx (4096)",
    "The number of tokens to keep from the initial prompt is greater than the context length "
    "(n_keep: 5000>= n_ctx: 4096).",
    "Prompt too long: 5000 tokens exceeds max context window of 4096 tokens",
    "Input validation error: `inputs` must have less than 4096 tokens. Given: 5000",
    "This endpoint's maximum context length is 4096 tokens. However, you requested about 5100 tokens (4600 of text "
    "input, 400 of tool input, 100 in the output). Please reduce the length of either one",
    "This model's maximum context length is 4096 tokens. However, your prompt contains at least 5000 input tokens, "
    "which exceeds this limit even without any output tokens.",
    "Input length 5000 exceeds the maximum allowed input length of 4096 tokens.",
]
PROMPT_AND_OUTPUT = [
    "input length and `max_tokens` exceed context limit: 3000 + 2000 > 4096, decrease input length or `max_tokens`",
    "'max_tokens' or 'max_completion_tokens' is too large: 2000. This model's maximum context length is 4096 tokens "
    "and your request has 3000 input tokens (2000 > 4096 - 3000).",
    "This model's maximum context length is 4096 tokens. However, you requested 2000 output tokens and your prompt "
    "contains at least 3000 input tokens, for a total of at least 5000 tokens.",
    "This model's maximum context length is 4096 tokens. However, you requested 5000 tokens (3000 in the messages, "
    "2000 in the completion).",
    "This endpoint's maximum context length is 4096 tokens. However, you requested about 5000 tokens (3000 of text "
    'input, 2000 in the output). Please reduce the length of either one, or use the "middle-out" transform',
    "Input validation error: `inputs` tokens + `max_new_tokens` must be <= 4096. Given: 3000 `inputs` tokens and 2000 "
    "`max_new_tokens`",
    "Requested token count exceeds the model's maximum context length of 4096 tokens. You requested a total of 5000 "
    "tokens: 3000 tokens from the input messages and 2000 tokens for the completion.",
]
NO_NUMBERS = [
    {"message": "Your input exceeds the context window of this model.", "code": "context_length_exceeded"},
    {"message": "Please reduce the length of the messages or completion.", "code": "context_length_exceeded"},
    {"message": "the request exceeds the available context size, try increasing it", "code": 400},
    {"message": "no room", "code": 400, "type": "exceed_context_size_error"},
    {"message": "prompt too long; exceeded max context length by 904 tokens"},
    {"message": "the input length exceeds the context length"},
    {"message": "Input is too long for requested model."},
    {"message": "Prompt exceeds maximum context length"},
    {
        "message": "This model's maximum context length is 4096 tokens. However, your prompt contains 99000 characters "
        "(more than 90000 characters, which is the upper bound for 4000 input tokens)."
    },
]


def client_errors(error: object, status: int = 400) -> tuple[str, str, str | None]:
    """Returns the messages for clients of Anthropic's and OpenAI's APIs, and the code in OpenAI's."""
    made = error_from_response(status, json.dumps({"error": error}).encode())
    anthropics = json.loads(dialects.get("anthropic_messages").write_error(made))["error"]
    openais = json.loads(dialects.get("openai_chat").write_error(made))["error"]
    assert made.status_hint == 400 or isinstance(made, UpstreamError)
    return anthropics["message"], openais["message"], openais["code"]


@pytest.mark.parametrize("words", PROMPT)
def test_prompt_overflow_message_is_recognized(words: str) -> None:
    assert client_errors({"message": words}) == (
        "prompt is too long: 5000 tokens > 4096 maximum",
        "This model's maximum context length is 4096 tokens. However, your messages resulted in 5000 tokens. "
        "Please reduce the length of the messages.",
        "context_length_exceeded",
    )


@pytest.mark.parametrize("words", PROMPT_AND_OUTPUT)
def test_prompt_plus_output_overflow_message_is_recognized(words: str) -> None:
    """Claude Code then requests fewer tokens; for "prompt is too long" it would compact a conversation that fits."""
    assert client_errors(words) == (
        "input length and `max_tokens` exceed context limit: 3000 + 2000 > 4096",
        "This model's maximum context length is 4096 tokens. However, you requested 5000 tokens (3000 in the messages, "
        "2000 in the completion). Please reduce the length of the messages or completion.",
        "context_length_exceeded",
    )


@pytest.mark.parametrize("error", NO_NUMBERS, ids=lambda error: error["message"])
def test_overflow_message_without_numbers_is_recognized(error: dict[str, object]) -> None:
    assert client_errors(error) == (
        "prompt is too long for the model",
        "Your messages exceed this model's maximum context length. Please reduce the length of the messages.",
        "context_length_exceeded",
    )


@pytest.mark.parametrize(
    "words",
    [
        "Too many tokens, please wait before trying again.",
        "Rate limit reached: Limit 30000 tokens per minute, requested 40000.",
        "max_tokens must be at least 1, got -5",
    ],
)
def test_other_token_error_is_not_context_overflow(words: str) -> None:
    error = error_from_response(429, json.dumps({"error": {"message": words}}).encode())
    assert not isinstance(error, ContextOverflowError)
    assert isinstance(error, UpstreamError)
    assert error.status == 429


@pytest.mark.parametrize("page", [b"<" * 65536, b"<style>" * 9362, b"<style>a</style>" * 4000, b"</" * 32768])
def test_html_error_page_is_read_in_linear_time(page: bytes) -> None:
    error = error_from_response(502, page + b"Bad Gateway")
    assert error.message.startswith("the server answered 502: ")


def test_html_error_page_is_reported_as_visible_text() -> None:
    page = b"<html><style>b {}</style><p>Bad <b>Gateway</b></p><script>if (a < b) c()</script> 2 < 3"
    assert error_from_response(502, page).message == "the server answered 502: Bad Gateway 2 < 3"


def test_absurd_token_count_is_dropped() -> None:
    error = error_from_response(
        400, json.dumps({"error": f"prompt is too long: {'9' * 5000} tokens > 1 maximum"}).encode()
    )
    assert isinstance(error, ContextOverflowError)
    assert error.input_tokens == 0
