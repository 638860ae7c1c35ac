"""The grammar of a reply without calls."""

import pytest
from llguidance import LLMatcher, LLTokenizer

from dragoman.constraints.words_only import words_only_grammar

TOOLS = ["find_book", "greet"]
GRAMMAR = words_only_grammar(["<tool_call>", "functools["], TOOLS, {"<think>": "</think>"})
NO_REASONING = words_only_grammar(["<tool_call>"], TOOLS, {})
ALLOWED = {
    "words": "Hello! How are you?",
    "other letters": "é, 漢字",
    "code and JSON later": 'Here it is:\n\n```json\n{"name": "Ann", "age": 3}\n```\n',
    "a tag that is not of a call": "Use <b> for bold <tool",
    "reasoning": '<think>\nIs {"arguments": 1} a call?\n</think>\n\nNo.',
    "a tag at the beginning": "<div>Hello</div>",
    "code at the beginning": "```python\nprint(1)\n```",
    "JSON with parameters": 'An OpenAPI path has "parameters": {} and "arguments": [].',
    "the name of a tool": "I could use `find_book` here, or greet you.",
}
FORBIDDEN = {
    "JSON": '{"name"',
    "a list": "[{",
    "a fence": "```json",
    "a fence of an object": '```\n{"',
    "a tag": "<tools>",
    "white space before it": "\n{",
    "a call after words": 'Sure.\n{"name": "greet", "arguments":',
    "no colon": 'Sure.\n{"name" "greet"',
    "a comma": 'Sure.\n{"name","greet"',
    "single quotes": "Sure.\n{'name': 'find_book'",
    "a Python call": "find_book(query='x')",
    "a name before an object": "I call find_book{",
    "the format's own call": "I call it. <tool_call>",
    "white space in a marker": "functools [",
    "a call after reasoning": "<think>a</think>\n<tool_call>",
}


def accepted(text: str, grammar: str = GRAMMAR) -> bool:
    matcher = LLMatcher(LLTokenizer("byte"), grammar)
    return bool(matcher.try_consume_tokens([*text.encode()]) == len(text.encode()))


@pytest.mark.parametrize("text", ALLOWED.values(), ids=ALLOWED)
def test_text_is_allowed(text: str) -> None:
    assert accepted(text)


@pytest.mark.parametrize("text", FORBIDDEN.values(), ids=FORBIDDEN)
def test_what_begins_a_call_is_forbidden(text: str) -> None:
    assert not accepted(text)
    assert not accepted(text, NO_REASONING) or "functools" in text


def test_reply_may_begin_with_reasoning_only_where_the_model_reasons() -> None:
    assert accepted("<think>")
    assert not accepted("<think>", NO_REASONING)


def test_formats_without_reasoning_have_a_valid_grammar() -> None:
    assert not LLMatcher.validate_grammar(words_only_grammar(["[TOOL_CALLS]", '"x"\\'], ["a.b", "ü"], {}))
    assert not LLMatcher.validate_grammar(words_only_grammar(["[TOOL_CALLS]"], [], {}))


def test_many_tools_have_a_valid_grammar() -> None:
    names = [f"server_{n}_does_something_number_{n}" for n in range(300)]
    grammar = words_only_grammar(["<tool_call>"], names, {})
    assert not LLMatcher.validate_grammar(grammar)
    assert accepted("Some words.", grammar)
    assert not accepted(f'"name": "{names[-1]}"', grammar)
