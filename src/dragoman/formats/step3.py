"""Step3: calls and parameters named in attributes, with each call between markers like those of DeepSeek V3.

    <｜tool_calls_begin｜>
    <｜tool_call_begin｜>function<｜tool_sep｜><steptml:invoke name="get_weather">
    <steptml:parameter name="city">Paris</steptml:parameter>
    </steptml:invoke><｜tool_call_end｜>
    <｜tool_calls_end｜>

Values are raw, including trailing spaces; the tool's schema defines their types. Also accepted: calls without
`function<｜tool_sep｜>`, or without the markers. Step 3.5 and later write the format `qwen3_xml`.

Source: the `step3` parsers of vLLM 0.33 and SGLang 0.5.23 (2026-10); the template of stepfun-ai/step3 (2025-07) was not
available.
"""

from typing import Final

from dragoman.parsing.shapes.invoke_tags import InvokeTags, invoke_format

TAGS: Final = InvokeTags(
    call=("<steptml:invoke", "</steptml:invoke>"),
    parameter=("<steptml:parameter", "</steptml:parameter>"),
    section=("<｜tool_calls_begin｜>", "<｜tool_calls_end｜>"),
    prefix="<｜tool_call_begin｜>function<｜tool_sep｜>",
    other_prefixes=("<｜tool_call_begin｜>", ""),
    suffix="<｜tool_call_end｜>",
    section_optional=True,
)

FORMAT: Final = invoke_format(
    TAGS,
    name="step3",
    model_families="Step3",
    source="as the parsers of vLLM 0.33 and SGLang 0.5.23 read it (2026-10); the template was not seen",
)
