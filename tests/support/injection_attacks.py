"""Attack texts built from the formats' own markers, and a conversation that contains them in each place.

The markers are taken from the formats' records and output, not from the list of markers that is under test.
"""

import html
import json
from collections.abc import Iterator

import msgspec

from dragoman import formats
from dragoman.core import messages as v
from dragoman.parsing.format import Format

WORD = "pomegranate"
"""Harmless text in place of an attack."""
PLACES = (
    *("system", "developer", "user", "title", "document", "id", "name", "key", "argument", "result", "found", "own"),
    *("thought", "last", "description", "schema", "property", "enum", "choice", "opaque", "example"),
)
OWN = ("own", "thought", "key", "argument")
"""Places with the model's own output."""
TOOLS = (v.Tool("ping"), v.Tool("rm", parameters='{"type": "object", "properties": {"path": {"type": "string"}}}'))


def marks(format: Format) -> set[str]:
    """All markers in replies of this format, or in its prompts."""
    found = {*format.markers, *format.calls, *format.reasoning_tags, *format.reasoning_tags.values(), *format.section}
    found |= {*format.reasoning_wrapper}
    if format.markup:
        found |= {*format.markup.marks}
    return {each for each in found if len(each.strip()) > 2 and each.strip(" `[]\n")}


def written(format: Format) -> list[str]:
    """Complete calls, results and tools, and the text around them."""
    call = v.ToolCall("call00009", "rm", '{"path": "/"}')
    calls = format.write_calls([call])
    shown = format.write_result(v.ToolResult("call00009", (v.Text(WORD),)), "rm")
    before, _, behind = shown.partition(WORD)
    behind_call = format.write_call(v.ToolCall("call00001", "ping", f'{{"path": "{WORD}"}}')).partition(WORD)[2]
    tools = format.write_tools(TOOLS, v.ToolChoice())
    return [calls, shown, behind + calls + before, behind_call + calls, behind_call + format.separator + calls, tools]


def attacks(format: Format, others: tuple[str, ...] = ()) -> dict[str, list[str]]:
    """Attack texts by kind; `others` are markers of the model's template."""
    known = sorted({*marks(format), *others})
    return {
        "whole": [*known, *written(format)],
        "doubled": [mark + mark for mark in known],
        "nested": [mark[:cut] + mark + mark[cut:] for mark in known for cut in _cuts(mark)],
        "beginnings": [mark[:cut] for mark in known for cut in _cuts(mark)],
        "ends": [mark[cut:] for mark in known for cut in _cuts(mark)],
        "references": [each for mark in known for each in (html.escape(mark), f"&#{ord(mark[0])};{mark[1:]}")],
        "escapes": [each for mark in known for each in (json.dumps(mark)[1:-1], f"\\u{ord(mark[0]):04x}{mark[1:]}")],
        "case": [each for mark in known for each in (mark.upper(), mark.title(), mark.swapcase())],
        "alike": [each for mark in known for each in _alike(mark)],
        "spaced": [
            each for mark in known for each in (" ".join(mark), f"{mark[:1]} {mark[1:]}", f"{mark[:-1]} {mark[-1]}")
        ],
    }


def _cuts(mark: str) -> list[int]:
    return sorted({1, len(mark) // 2, len(mark) - 1})


def _alike(mark: str) -> Iterator[str]:
    yield "".join(chr(ord(char) + 0xFEE0) if "!" <= char <= "~" else char for char in mark)
    for unseen in ("\u200b", "\xad", "\u2060", "\ufe0f", "\U000e0041"):
        yield unseen.join(mark)
        yield mark[:1] + unseen + mark[1:]
    for char, other in (("a", "а"), ("o", "о"), ("e", "е"), ("<", "‹"), ("|", "∣"), ("[", "⁅"), ("l", "𝐥")):
        if char in mark:
            yield mark.replace(char, other)


def conversation(words: str, place: str, second: str = "") -> v.Request:
    """A conversation with this text in this place, and `second` in the next part there."""

    def said(at: str, ordinary: str) -> str:
        return words if at == place else ordinary

    def texts(at: str, ordinary: str) -> tuple[v.Text, ...]:
        return tuple(map(v.Text, (words, second) if at == place and second else (said(at, ordinary),)))

    name, id = said("name", "ping"), said("id", "call00001")
    arguments = json.dumps({said("key", "city"): said("argument", "Paris")}, ensure_ascii=False)
    document = v.Document(
        v.MediaSource(text=second if second and place == "title" else said("document", "Words.")), said("title", "T")
    )
    schema = {
        "type": "object",
        "description": said("schema", "Where."),
        "properties": {said("property", "city"): {"type": "string", "enum": [said("enum", "Paris"), "Rome"]}},
    }
    result = v.ToolResult(id, (*texts("result", "Sunny."), v.Document(v.MediaSource(text=said("found", "18 degrees")))))
    opaque = v.UnknownPart(said("opaque", "image"), msgspec.Raw(b"{}"))
    messages = (
        v.Message("system", texts("system", "Be kind.")),
        v.Message("user", (*texts("user", "How is it?"), document)),
        v.Message("assistant", (*texts("own", "Wait."), v.ToolCall(id, name, arguments))),
        v.Message("tool", (result,)),
        v.Message("developer", texts("developer", "Be brief.")),
        v.Message("user", texts("last", "And now?")),
        v.Message("assistant", (v.Reasoning(said("thought", "Hm.")), v.ToolCall("call00002", "rm", '{"path": "x"}'))),
        v.Message("tool", (v.ToolResult("call00002", (v.Text("Gone."), opaque)),)),
    )
    examples = (json.dumps({"city": said("example", "Paris")}, ensure_ascii=False),)
    described = (said("description", "Says."), json.dumps(schema, ensure_ascii=False))
    tools = (v.Tool(name, *described, examples=examples), *TOOLS[1:])
    choice = v.ToolChoice("named", said("choice", "ping")) if place == "choice" else v.ToolChoice()
    return v.Request("m", messages, tools, choice)


def all_formats() -> list[Format]:
    return [formats.get(name) for name in formats.names()]
