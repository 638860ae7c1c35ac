"""The grammar of a reply without calls."""

import pytest
from llguidance import LLMatcher, LLTokenizer

from dragoman.constraints.words_only import words_only_grammar

GRAMMAR = words_only_grammar(["<tool_call>"], {"<think>": "</think>"})
ALLOWED = {
    "words": "Hello! How are you?",
    "other letters": "é, 漢字",
    "code and JSON later": 'Here it is:\n\n```json\n{"name": "Ann", "age": 3}\n```\n',
    "a tag that is not of a call": "Use <b> for bold <tool",
    "reasoning": '<think>\nIs {"arguments": 1} a call?\n</think>\n\nNo.',
}
FORBIDDEN = {
    "JSON": '{"name"',
    "a list": "[{",
    "a fence": "```json",
    "a tag": "<tools>",
    "white space before it": "\n{",
    "a call after words": 'Sure.\n{"name": "greet", "arguments":',
    "parameters": '"parameters" :',
    "the format's own call": "I call it. <tool_call>",
    "a call after reasoning": "<think>a</think>\n<tool_call>",
}


def accepted(text: str) -> bool:
    matcher = LLMatcher(LLTokenizer("byte"), GRAMMAR)
    return bool(matcher.try_consume_tokens([*text.encode()]) == len(text.encode()))


@pytest.mark.parametrize("text", ALLOWED.values(), ids=ALLOWED)
def test_text_is_allowed(text: str) -> None:
    assert accepted(text)


@pytest.mark.parametrize("text", FORBIDDEN.values(), ids=FORBIDDEN)
def test_what_begins_a_call_is_forbidden(text: str) -> None:
    assert not accepted(text)


def test_formats_without_reasoning_have_a_valid_grammar() -> None:
    assert not LLMatcher.validate_grammar(words_only_grammar(["[TOOL_CALLS]", '"x"\\'], {}))
