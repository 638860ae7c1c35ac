"""Dots: calls and parameters named in attributes, in a section with its own name.

    <dots_function_call>
    <invoke name="get_weather">
    <parameter name="city">Paris</parameter>
    </invoke>
    </dots_function_call>

Values are raw, including trailing spaces; the tool's schema defines their types. Line breaks between the tags may be
missing.

Source: the `dots` parsers of vLLM 0.33 and SGLang 0.5.23 (2026-10); the template was not available.
"""

from typing import Final

from dragoman.parsing.shapes.invoke_tags import InvokeTags, invoke_format

TAGS: Final = InvokeTags(section=("<dots_function_call>", "</dots_function_call>"))

FORMAT: Final = invoke_format(
    TAGS,
    name="dots",
    model_families="dots.llm2 and later",
    source="as the parsers of vLLM 0.33 and SGLang 0.5.23 read it (2026-10); the template was not seen",
)
