"""Formats write the same bytes as the vendor's own chat template.

    # format                 calls; `# format result`: the result of the first call, `# format tools`: the tool list
    ids: call1 call2         the calls' ids (before the text); else call00001 and so on
    calls: get_weather ping  which of the calls; else all
    the text

The texts were written by the template or encoder that the format names as its source.
"""

import re

import pytest

from dragoman import formats
from dragoman.core.messages import Text, Tool, ToolCall, ToolChoice, ToolResult
from support.format_cases import DATA

CALLS = {
    "get_weather": '{"city": "Paris", "days": 3}',
    "set_alarm": '{"label": "wake \\"up\\"\\nnow", "hour": 7, "days": ["mon", "é"], "at": {"h": 7, "s": "x"}}',
    "ping": "{}",
}
SCHEMAS = {
    "get_weather": '{"type": "object", "properties": {"city": {"type": "string", "description": "Which"}, '
    '"days": {"type": "integer", "description": "D"}}, "required": ["city"]}',
    "set_alarm": '{"type": "object", "properties": {"label": {"type": "string", "description": "D"}, '
    '"hour": {"type": "integer", "description": "D"}, '
    '"days": {"type": "array", "items": {"type": "string"}, "description": "D"}, '
    '"at": {"type": "object", "description": "D"}}, "required": []}',
    "ping": '{"type": "object", "properties": {}, "required": []}',
}
TOOLS = [Tool(name, f"Does {name}.", schema) for name, schema in SCHEMAS.items()]
OPTION = re.compile(r"(ids|calls): (.*)\n")


def texts() -> list[tuple[str, dict[str, list[str]], str]]:
    found = []
    for block in re.split(r"^# ", (DATA / "written.txt").read_text(), flags=re.M)[1:]:
        title, _, text = block.partition("\n")
        options: dict[str, list[str]] = {}
        while option := OPTION.match(text):
            options[option[1]] = option[2].split()
            text = text[option.end() :]
        found.append((title, options, text.rstrip("\n")))
    return found


@pytest.mark.parametrize(("title", "options", "text"), texts(), ids=[text[0] for text in texts()])
def test_format_writes_same_text_as_vendor_template(title: str, options: dict[str, list[str]], text: str) -> None:
    name, _, what = title.partition(" ")
    format = formats.get(name)
    names = options.get("calls", list(CALLS))
    ids = options.get("ids", [f"call{i:05}" for i in range(1, len(names) + 1)])
    if what == "tools":
        assert f":\n{text}\n\n" in format.write_tools(TOOLS, ToolChoice())
    elif what == "result":
        assert format.write_result(ToolResult(ids[0], (Text("18 °C"),)), names[0]) == text
    else:
        calls = [ToolCall(id, tool, CALLS[tool]) for id, tool in zip(ids, names, strict=True)]
        assert format.write_calls(calls).rstrip("\n") == text
