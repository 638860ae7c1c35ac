"""`auto` reads every case of every format like the format that wrote it, without knowing which format that is."""

from collections.abc import Iterable

import pytest

from dragoman import formats
from dragoman.core import events as ev
from dragoman.text.control_tokens import CONTROL_TOKEN_START
from dragoman.text.escape import escape_markers
from support.check_each import check_each
from support.format_cases import Case, cases_by_format, shown, title
from support.injection_attacks import marks

NOT_DETECTABLE = ("beam", "inkling", "llama3_json", "xlam")
"""Formats whose calls have no opening marker, or only one that the prompt already ends with."""
READ_DIFFERENTLY = {
    "apriel: a result of its own making": "the opener is that of others, and they know no such result",
    "apriel: thoughts before, between and after calls": "the opener is that of others, and they think in other words",
    "deepseek_v31: calls without their openers": "DeepSeek V3 has the same opener, and needs it",
    "deepseek_v31: no arguments": "the same, and it needs arguments",
    "ernie45: commas, line breaks and white space between calls": "Hermes has the same tag around one call",
    "ernie45: one brace too many": "the same",
    "functionary_v31: cut off before the arguments": "Qwen3-Coder has the same opener",
    "functionary_v31: parameters in tags of their own are no JSON": "the same, and they are parameters there",
    "functionary_v32: a marker of other things in the text": "text for `all` begins as any text may",
    "functionary_v32: arguments that are no JSON": "Python's prompts look like its headers: they begin a reply",
    "functionary_v32: cut off before the arguments": "the same",
    "functionary_v32: cut off in a header": "the same",
    "functionary_v32: text alone": "text for `all` begins as any text may",
    "functionary_v32: text before a call": "the same",
    "functionary_v32: text before and after the calls": "the same",
    "functionary_v32: text, then a call": "text for `all` begins as any text may",
    "granite: an answer in tags, and a call in it": "Hermes has the same tag, and no such answers",
    "granite: thoughts before, between and after calls": "the same",
    "harmony: headers that are none": "without a header before them, the marks are plain text",
    "harmony: the recipient in the role": "the prompt has ended in the role",
    "hermes: a doubled opening tag, a doubled closing tag": "a tag after the tag belongs to Qwen3-Coder",
    "hermes: an empty block": "the closing tag is known only when the format is known",
    "hermes: an opening tag where the closing one should be": "the same",
    "hermes: lenient: a missing opening tag": "only Hermes can know what is missing",
    "hermes: two opening tags and no call": "a tag behind the tag is Qwen3-Coder's",
    "hunyuan_a13b: a call in the answer": "others have the same opener, and no such answers",
    "hunyuan_a13b: a result of its own making": "the opener is that of others, and they know no such result",
    "kimi_k3: an answer that the prompt has opened": "that space is the model's own is known from a call on",
    "lfm2: a list without markers is no call": "if the format is unknown, it is a call",
    "longcat_xml: tags of GLM are no call": "the tags of GLM are calls",
    "mistral: the array of earlier versions is not read here": "earlier versions read it",
    "muse_glimmer: no header": "with no header before it, it is plain text",
    "muse_glimmer: a call in a message without a recipient": "the same",
}


@pytest.mark.parametrize("name", [name for name in cases_by_format() if name not in ("auto", *NOT_DETECTABLE)])
def test_auto_reads_reply_like_its_own_format(name: str, subtests: pytest.Subtests) -> None:
    def check(case: Case) -> None:
        own, auto = (known(it.events) for it in (case, case.changed(format="auto")))
        assert (own == auto) == (f"{case.format}: {case.title}" not in READ_DIFFERENTLY), auto

    check_each(subtests, cases_by_format()[name], check, title)


def known(events: Iterable[ev.AnyEvent]) -> list[str]:
    """Returns the events as lines, without the warnings."""
    return [line for line in shown(events) if not line.startswith("warning")]


ORDINARY = {
    *("</available_tools", "</thinking>", "<available_tools>", "<thinking>", "Here are my reasoning steps:"),
    *("[BEGIN FINAL RESPONSE]", "[END FINAL RESPONSE]", "</results", "<results>", "</function_results", "</functions"),
    *("</result", "<functions>", "<result>", "</invoke>", "</parameter>", "<invoke", "<parameter", "</response>"),
    *("<response>", "</response", "</function>", ">>>", "Here is my response:", "Here is my thought process:"),
    *("Here's my response:", "Here's my thought process:", "</answer>", "<answer>", "</think:opensource>"),
    *(
        "<think:opensource>",
        "</param>",
        "<function",
        "<function ",
        "<function\n",
        "<param",
        "</tool",
        "<tool>",
        "</mm:think>",
    ),
    *("<mm:think>", "</arguments>", "</server_name>", "</tool_name>", "<arguments>", "<server_name>", "<tool_name>"),
    *("[/THINK]", "[THINK]", "</AVAILABLE_TOOLS", "<AVAILABLE_TOOLS>", "</seed:think>"),
}
"""Markers that may occur in ordinary text, or that mean nothing without another marker. If the format is unknown, none
of them opens a call, except where `auto` itself reads it."""


@pytest.mark.parametrize("name", [name for name in formats.names() if name != "auto"])
def test_markers_of_each_format_are_escaped_for_auto(name: str) -> None:
    """The markers of a new format belong in `OTHERS` or in `ORDINARY`."""
    known = formats.get("auto").markers
    for mark in marks(formats.get(name)) - ORDINARY:
        assert escape_markers(mark, CONTROL_TOKEN_START) != mark or escape_markers(mark, known) != mark, mark


def test_lookalike_markers_are_escaped() -> None:
    assert escape_markers("＜tool_call＞", formats.get("auto").markers) != "＜tool_call＞"


def test_ordinary_list_contains_only_markers() -> None:
    assert {mark for name in formats.names() if name != "auto" for mark in marks(formats.get(name))} >= ORDINARY
