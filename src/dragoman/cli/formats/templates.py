"""Modules and cases from which `dragoman formats new` begins: one for each usual notation of calls."""

from collections.abc import Iterator, Mapping
from typing import Final

from dragoman.api.case_file import FormatCase, show_events
from dragoman.core.messages import ToolCall
from dragoman.parsing.format import Format

_HEAD: Final = '''"""NAME: describe the notation, name the models that write it, and show it literally.

CALL

Source: the vendor's chat template or page (date).
"""

from typing import Final

'''
_FIELDS: Final = """    name="NAME",
    model_families="the models that write it",
    source="the vendor's chat template or page (date)",
"""
_OBJECT: Final = (
    """    <NAME_call>
    {"name": "get_weather", "arguments": {"city": "Paris"}}
    </NAME_call>""",
    """from dragoman.parsing.format import THINK
from dragoman.parsing.shapes.json_block import json_calls_format
from dragoman.parsing.shapes.json_object import JsonCallKeys

OPEN, CLOSE = "<NAME_call>", "</NAME_call>"

FORMAT: Final = json_calls_format(
FIELDS    blocks={OPEN: CLOSE},
    keys=JsonCallKeys(name=("name",), arguments=("arguments",)),
    call=(f"{OPEN}\\n", f"\\n{CLOSE}"),
    separator="\\n",
    reasoning_tags=THINK,
)
""",
)
_NAME_FIRST: Final = (
    """    <NAME_call>get_weather
    {"city": "Paris"}
    </NAME_call>""",
    '''from dragoman.parsing.define_format import json_format
from dragoman.parsing.format import THINK
from dragoman.parsing.markup import Markup
from dragoman.parsing.shapes.name_then_json import CallHead, NameThenJson
from dragoman.text.scanner import Parser, Scanner, markers

OPEN, HEAD_END, CLOSE = "<NAME_call>", "\\n", "</NAME_call>"


def read_head(s: Scanner, opener: str) -> Parser[CallHead | None]:
    """Reads the name after the opener; None: this is not a call."""
    found = yield from s.field(markers(HEAD_END))
    return CallHead(found[0].strip()) if found else None


def call_wrapper(name: str, id: str) -> tuple[str, str]:
    """Returns the text before and after the arguments."""
    return f"{OPEN}{name}{HEAD_END}", f"\\n{CLOSE}"


FORMAT: Final = json_format(
FIELDS    read=Markup(
        calls={OPEN: NameThenJson(read_head, closers=(CLOSE,)).read},
        reasoning_tags=THINK,
        closers=(CLOSE,),
    ),
    call_wrapper=call_wrapper,
    opener=OPEN,
    markers=(OPEN, CLOSE, *THINK, *THINK.values()),
)
''',
)
_PARAMETERS: Final = (
    """    <NAME:calls>
    <NAME:call name="get_weather">
    <NAME:value name="city">Paris</NAME:value>
    </NAME:call>
    </NAME:calls>""",
    """from dragoman.parsing.shapes.invoke_tags import InvokeTags, invoke_format

TAGS: Final = InvokeTags(
    call=("<NAME:call", "</NAME:call>"),
    parameter=("<NAME:value", "</NAME:value>"),
    section=("<NAME:calls>", "</NAME:calls>"),
)

FORMAT: Final = invoke_format(
    TAGS,
FIELDS)
""",
)
SHAPES: Final[Mapping[str, tuple[str, str]]] = {
    "hermes": _OBJECT,
    "mistral": _NAME_FIRST,
    "minimax_m2": _PARAMETERS,
}
"""By a format with the same notation: an example of a call, and the module."""


def module_text(name: str, like: str) -> str:
    """Returns the module of a new format.

    Args:
        name: Its name.
        like: A key of `SHAPES`.
    """
    example, body = SHAPES[like]
    return (_HEAD.replace("CALL", example) + body.replace("FIELDS", _FIELDS)).replace("NAME", name)


def case_file_text(format: Format) -> str:
    """Returns cases that the format passes, with the events that it reads now."""
    blocks = []
    for title, options, text in _cases(format):
        case = FormatCase(format, title, text, [], options)
        lines = [f"# {title}", *(f"{key}: {value}" for key, value in options.items()), text, "---"]
        blocks.append("\n".join([*lines, *show_events(case.read([text]))]))
    return "\n\n".join(blocks) + "\n"


def _cases(format: Format) -> Iterator[tuple[str, dict[str, str], str]]:
    """Yields title, options and text of each case."""

    def calls(*pairs: tuple[str, str]) -> str:
        return format.write_calls([ToolCall(f"call{i:05}", *pair) for i, pair in enumerate(pairs)])

    weather, ping = ("get_weather", '{"city": "Paris"}'), ("ping", "{}")
    one = calls(weather)
    begin, end = next(iter(format.reasoning_tags.items()))
    mark = next(iter(format.calls)).strip()
    cut = one[: one.index("Paris") + 4]
    yield "a single call", {}, one
    yield "two calls", {}, calls(weather, ping)
    yield "no call", {}, "It is 18 °C in Paris."
    yield "text around a call", {}, f"Let me see.\n{one}\nDone."
    yield "no arguments", {}, calls(ping)
    yield "reasoning before a call", {}, f"{begin}\nParis is meant.\n{end}\n\n{one}"
    yield "reasoning that the prompt has opened", {"tail": begin}, f"Paris is meant.\n{end}\n\n{one}"
    yield "nested arguments", {}, calls(("set_alarm", '{"hour": 7, "days": [[], {}, 1.50], "at": {"a": {"b": null}}}'))
    yield "unicode and escapes", {}, calls(("write_file", '{"text": "Zürich \\"☕\\" \\n C:\\\\"}'))
    yield "the opener inside a value", {}, calls(("write_file", f'{{"text": "a {mark.replace(chr(34), "")} b"}}'))
    yield "the opener in text", {}, f"A call begins with {mark} and has a name."
    yield "cut off inside the arguments", {"reason": "length"}, cut
    yield "a tool that is not offered", {}, calls(("rm_rf", '{"path": "/"}'))
    yield "the end of the call is missing", {}, one[: one.rindex("</")].rstrip()


PYPROJECT: Final = """[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"

[project]
name = "dragoman-format-DASHED"
version = "0.1"
dependencies = ["dragoman"]

[project.entry-points."dragoman.formats"]
NAME = "dragoman_format_NAME"

[tool.hatch.build.targets.wheel]
include = ["dragoman_format_NAME.py"]
"""
