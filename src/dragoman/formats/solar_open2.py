"""Solar Open 2: the tool's name, then tokens around each parameter's name and value.

    <|tool_call:start|>get_weather
    <|tool_arg:start|>city<|tool_arg:value|>Paris<|tool_arg:end|>
    <|tool_call:end|>

Reasoning is in `<|think:start|>…<|think:end|>`. Strings are raw, including trailing spaces; other values are JSON.
Solar Open writes another format (`solar`). Also accepted: one JSON object after the name, a missing `<|tool_arg:end|>`.

Source: https://github.com/vllm-project/vllm, vllm/tool_parsers/solar_open2_tool_parser.py, and the detector of that
name that SGLang's users ported from Upstage's fork of vLLM (2026-09); the template was not available.
"""

from typing import Final

from dragoman.parsing.define_format import text_format
from dragoman.parsing.shapes.key_value_tags import KeyValueTags
from dragoman.parsing.tool_markup import ToolResultMarkup

TAGS: Final = KeyValueTags(
    call=("<|tool_call:start|>", "<|tool_call:end|>"),
    key=("<|tool_arg:start|>", "<|tool_arg:value|>"),
    value=("", "<|tool_arg:end|>"),
)
REASONING_TAGS: Final = {"<|think:start|>": "<|think:end|>"}

FORMAT: Final = text_format(
    name="solar_open2",
    model_families="Solar Open 2",
    source="vLLM's parser solar_open2 (2026-09); the template was not seen",
    read=TAGS.markup(REASONING_TAGS),
    write_call=TAGS.writer.write_call,
    constrain_call=TAGS.writer.constrain_call,
    opener=TAGS.call[0],
    markers=(
        *TAGS.markers(),
        *REASONING_TAGS,
        *REASONING_TAGS.values(),
        "<|im:start|>",
        "<|im:content|>",
        "<|im:end|>",
    ),
    result=ToolResultMarkup("<|tool_response:start|>", "<|tool_response:end|>"),
)
