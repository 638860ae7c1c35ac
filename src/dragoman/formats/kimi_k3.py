"""Kimi K3: XTML, in which reasoning, answer, calls and parameters are elements of the same form.

    <|open|>think<|sep|>Look first.<|close|>think<|sep|><|open|>response<|sep|>Wait.<|close|>response<|sep|>
    <|open|>tools<|sep|><|open|>call tool="get_weather" index="1"<|sep|><|open|>argument key="city"
    type="string"<|sep|>Paris<|close|>argument<|sep|><|close|>call<|sep|><|close|>tools<|sep|><|close|>message<|sep|>

(All on one line; the prompt ends within an element.) `type` is used instead of the schema. Attributes contain XML
entities, values do not.

Source: chat template of moonshotai/Kimi-K3 (2026-07), as in llama.cpp (2026-10).
"""

from dataclasses import replace
from typing import Final

from dragoman.parsing.define_format import text_format
from dragoman.parsing.shapes.invoke_tags import InvokeTags

TAGS: Final = InvokeTags(
    call=("<|open|>call", "<|close|>call<|sep|>"),
    parameter=("<|open|>argument", "<|close|>argument<|sep|>"),
    section=("<|open|>tools<|sep|>", "<|close|>tools<|sep|>"),
    name="tool",
    key="key",
    end="<|sep|>",
    type_attribute="type",
    index=' index="1"',
    json_wrappers=dict.fromkeys(('<|open|>json type="object"<|sep|>', "<|open|>json<|sep|>"), "<|close|>json<|sep|>"),
    section_optional=True,
    escapes=True,
    lines=False,
)
REASONING_TAGS: Final = {"<|open|>think<|sep|>": "<|close|>think<|sep|>"}
FRAMES: Final = (
    '<|open|>message role="assistant"<|sep|>',
    "<|open|>response<|sep|>",
    "<|close|>response<|sep|>",
    "<|close|>message<|sep|>",
    "<|end_of_msg|>",
)

FORMAT: Final = text_format(
    name="kimi_k3",
    model_families="Kimi K3",
    source="chat template of moonshotai/Kimi-K3 (2026-07), as llama.cpp has it (2026-10)",
    read=replace(TAGS.markup(REASONING_TAGS, keep_whitespace=True), ignored_wrappers=FRAMES),
    write_call=TAGS.writer.write_call,
    constrain_call=TAGS.writer.constrain_call,
    opener=TAGS.section[0],
    markers=(*TAGS.markers(), *REASONING_TAGS, *REASONING_TAGS.values(), *FRAMES),
    section=TAGS.written_section,
    separator="",
    first_call_marker=TAGS.index,
)
