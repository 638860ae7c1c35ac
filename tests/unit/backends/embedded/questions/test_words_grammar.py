"""Which formats have a grammar of words, and what it lets pass is read as text."""

import pytest
from llguidance import LLMatcher

from dragoman import formats
from dragoman.backends.embedded.questions.call_decision import has_distinct_calls, words_grammar
from dragoman.core.messages import Tool

TOOLS = [Tool("find_book", "", "{}")]


@pytest.mark.parametrize("name", ["pythonic", "granite", "sarashina", "functionary_v32"])
def test_formats_whose_calls_look_like_words_have_no_grammar(name: str) -> None:
    assert not has_distinct_calls(formats.get(name))
    assert words_grammar(formats.get(name), TOOLS, "") == ""


@pytest.mark.parametrize("name", ["hermes", "llama3_json", "xlam", "phi4_mini", "mistral"])
def test_formats_with_distinct_calls_have_a_valid_grammar(name: str) -> None:
    assert has_distinct_calls(formats.get(name))
    assert not LLMatcher.validate_grammar(words_grammar(formats.get(name), TOOLS, ""))


def test_reasoning_is_allowed_if_the_template_has_it() -> None:
    hermes = formats.get("hermes")
    assert "reasoning" not in words_grammar(hermes, TOOLS, "{{ messages }}")
    assert "reasoning" in words_grammar(hermes, TOOLS, "{% if x %}<think>{% endif %}")
