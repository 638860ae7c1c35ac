"""Text of users, tools and documents can neither forge nor end a call, a result or a turn, in any format.

A conversation with hostile text in one place is rendered like one with ordinary text there: each marker occurs as
often, and reading it back finds the same calls.
"""

import html
import json
import re
from collections import Counter
from collections.abc import Callable, Collection
from functools import partial
from importlib.util import find_spec
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragoman import formats
from dragoman.backends.claude_cli import single_prompt
from dragoman.backends.text_mode import request as text_mode_request
from dragoman.backends.text_mode.chat_template import ChatTemplate
from dragoman.core import events as ev
from dragoman.core import messages as v
from dragoman.core.errors import RequestError
from dragoman.identify import detect_format
from dragoman.parsing.format import Format
from dragoman.parsing.reply_reader import ReplyReader
from dragoman.prompting.chat_renderer import ChatTurn, model_markup, render_chat
from dragoman.text.control_tokens import find_control_tokens
from dragoman.text.escape import escape_markers
from support import cpu_cost
from support.check_each import check_each
from support.format_cases import all_cases
from support.injection_attacks import OWN, PLACES, TOOLS, WORD, all_formats, attacks, conversation, marks
from support.paths import ROOT
from support.sampling import sample

KINDS = tuple(attacks(formats.get("hermes")))


def all_attacks(format: Format, others: tuple[str, ...] = ()) -> str:
    """Returns hostile text of all kinds."""
    return "\n".join(words for kind in attacks(format, others).values() for words in kind)


each_format = pytest.mark.parametrize("format", all_formats(), ids=lambda f: f.name)
some_formats = pytest.mark.parametrize("format", sample(all_formats(), 16, "injection"), ids=lambda f: f.name)
"""For words outside ASCII, as patterns of characters that look alike take long to compile."""


def marker_counts(text: str, known: set[str]) -> dict[str, int]:
    """Counts each marker in a prompt."""
    return {mark: count for mark in sorted(known) if (count := text.count(mark))}


def calls(format: Format, text: str) -> list[tuple[str, str]]:
    """Returns the calls that the format's reader finds."""
    ids = iter(range(9999))
    reader = ReplyReader(format, TOOLS, new_id=lambda: str(next(ids)))
    got: list[tuple[str, str]] = []
    for event in [*reader.feed(text), *reader.close()]:
        if isinstance(event, ev.ToolCallStart):
            got.append((event.name, ""))
        elif isinstance(event, ev.ToolCallDelta):
            got[-1] = (got[-1][0], got[-1][1] + event.text)
    return got


def expected_markers(format: Format, place: str, others: tuple[str, ...]) -> set[str]:
    """Returns the markers whose count must not change; in the model's own text, without those that it writes itself."""
    known = {*marks(format), *others}
    return known - {*model_markup(format), *marks(format)} if place in OWN else known


@each_format
def test_each_marker_of_a_reply_is_escaped(format: Format) -> None:
    """Without the sampling of places and texts, as each marker left out of `markers` is a hole of its own."""
    unescaped = {mark for mark in marks(format) if escape_markers(mark, format.markers) == mark}
    assert unescaped == set()


@pytest.mark.parametrize(
    ("kinds", "format"),
    [
        pytest.param(kinds, format, id=f"{name}-{format.name}")
        for name, kinds, some in (("read back", ("whole", "nested"), 99), ("all kinds", KINDS, 16))
        for format in sample(all_formats(), some, "injection")
    ],
)
def test_hostile_text_adds_no_markers_in_plain_turns(format: Format, kinds: tuple[str, ...]) -> None:
    """For servers and chat templates without tool support."""
    words = "\n".join(words for kind in kinds for words in attacks(format, TOKENS)[kind])
    for place in sample(PLACES, 2, f"{format.name} {kinds}"):
        hostile, ordinary = (render_chat(conversation(w, place), format) for w in (words, WORD))
        assert [turn.role for turn in hostile] == [turn.role for turn in ordinary]
        known = expected_markers(format, place, TOKENS)
        for bad, good in zip(hostile, ordinary, strict=True):
            assert marker_counts(bad.text, known) == marker_counts(good.text, known), place
            if bad.role != "assistant" and kinds != KINDS:
                found, expected = (calls(format, f"So: {turn.text}") for turn in (bad, good))
                if place == "example":  # the hostile text is an argument of a call that is written
                    found, expected = ([(name, "") for name, _ in each] for each in (found, expected))
                assert not Counter(found) - Counter(expected), place  # it may hide a call that instructions contain


TOKENS = (
    "<|im_start|>",
    "<|im_end|>",
    "<|eot_id|>",
    "<end_of_turn>",
    "[INST]",
    "[/INST]",
    "</s>",
    "<｜User｜>",
    "<turn|>",
)
"""Control tokens of other models' tokenizers: the server's model is not known."""


@each_format
def test_marker_split_over_parts_or_messages_is_not_completed(format: Format) -> None:
    known = marks(format)

    def marks_with(place: str, first: str, second: str) -> dict[str, int]:
        turns = render_chat(conversation(first, place, second), format)
        return marker_counts("\n".join(turn.text for turn in turns), known)

    for place in ("system", "user", "title", "result", "last"):
        ordinary = marks_with(place, "a", "b")
        for mark in sample(sorted(known), 2, f"{format.name} {place}"):
            for cut in {1, len(mark) // 2, len(mark) - 1}:
                assert marks_with(place, mark[:cut], mark[cut:]) == ordinary, (mark, place)


INSIDE_BRACKETS = ("INST", "/INST", "[INST", "INST]", "|im_end|>", "<|im_end|", "<", "|user|")
BRACKET_PLACES = ("result", "argument", "enum", "opaque", "id", "name", "title")


@each_format
def test_surrounding_brackets_complete_no_control_token(format: Format) -> None:
    def tokens_with(words: str, place: str) -> Collection[str]:
        return find_control_tokens("\n".join(turn.text for turn in render_chat(conversation(words, place), format)))

    for place in sample(BRACKET_PLACES, 3, format.name):
        ordinary = tokens_with(WORD, place)
        for words in sample(INSIDE_BRACKETS, 3, f"{format.name} {place}"):
            assert tokens_with(words, place) == ordinary, (words, place)


@each_format
def test_past_calls_with_hostile_arguments_are_read_back(format: Format) -> None:
    """The arguments may contain any text of a client."""
    of_kind = attacks(format)
    for words in (
        w for kind in ("whole", "nested", "doubled") for w in sample(of_kind[kind], 5, f"{format.name} {kind}")
    ):
        request = v.Request("m", (v.Message("user", (v.Text("hi"),)), past_call({"path": words})), TOOLS)
        text = render_chat(request, format)[-1].text
        if format.arguments == "JSON":
            got = [(name, json.loads(arguments)) for name, arguments in calls(format, text)]
            assert got == [("rm", {"path": words})]
        else:
            assert [name for name, _ in calls(format, text)] == ["rm"]


def past_call(arguments: dict[str, str]) -> v.Message:
    return v.Message("assistant", (v.ToolCall("call00001", "rm", json.dumps(arguments)),))


@pytest.mark.parametrize("name", ["auto", "own"])
def test_user_text_of_any_case_is_not_read_as_call(name: str) -> None:
    """Covers all texts of the reader tests, including malformed calls that are accepted."""
    for case in all_cases():
        format = formats.get(case.format if name == "own" else name)
        request = v.Request("m", (v.Message("user", (v.Text(case.text),)),))
        assert [calls(format, f"So: {turn.text}") for turn in render_chat(request, format)] in ([], [[]]), (
            case.format,
            case.title,
        )


# Paths to a model.


# Importing trl takes a second.
(TRL,) = find_spec("trl").submodule_search_locations  # type: ignore[union-attr,misc]
TEMPLATES = sorted(path for path in Path(TRL, "chat_templates").glob("*.jinja") if "training" not in path.name)
TAG = re.compile(r"</?[A-Za-z][\w:.|-]{0,40}>|\[/?[A-Z_]{2,20}\]")


@pytest.mark.parametrize("path", sample(TEMPLATES, 16, "templates"), ids=lambda path: path.stem)
def test_hostile_text_adds_no_markers_in_real_chat_templates(path: Path) -> None:
    """Templates with tool support get tools, calls and results; the others get plain turns."""
    source = path.read_text()
    format = detect_format(chat_template=source).format
    template = ChatTemplate(source, "", "", sorted(find_control_tokens(source)))
    own = {*find_control_tokens(source)}
    try:
        own |= {tag for tag in TAG.findall(template.render(conversation(WORD, "user"), format).text) if tag in source}
    except RequestError:
        with pytest.raises(RequestError):
            template.render(conversation(all_attacks(format), "user"), format)
        return
    own -= {"<args-json-object>", "<function-name>"}
    words = all_attacks(format, tuple(own))
    for place in sample(PLACES, 4, path.stem):
        known = expected_markers(
            format, place, tuple(t for t in own if place not in OWN or t in find_control_tokens(t))
        )
        bad, good = (template.render(conversation(w, place), format).text for w in (words, WORD))
        assert marker_counts(bad, known) == marker_counts(good, known), place


@some_formats
def test_hostile_text_adds_no_markers_in_prompt_mode(format: Format) -> None:
    words = all_attacks(format, TOKENS)
    for place in sample([place for place in PLACES if place not in (*OWN, "opaque", "choice")], 3, format.name):
        bad, good = (
            text_mode_request.for_prompted_mode(conversation(w, place), format)[0].messages for w in (words, WORD)
        )
        texts = [
            ["".join(part.text for part in m.parts if isinstance(part, v.Text)) for m in side] for side in (bad, good)
        ]
        known = {*marks(format), *TOKENS}
        assert [marker_counts(t, known) for t in texts[0]] == [marker_counts(t, known) for t in texts[1]], place


TAGS = ("<previous_response>", "</previous_response>", "<previous_response")


def test_hostile_text_adds_no_markers_in_claude_cli_prompt() -> None:
    format = single_prompt.FORMAT
    words = all_attacks(format, (*TAGS, "\ufdd0", "\ufdd00\ufdd0"))
    for place in (place for place in PLACES if place not in ("opaque", "choice")):
        bad, good = (shown_to_claude(conversation(w, place)) for w in (words, WORD))
        known = {*TAGS, "\ufdd0"} | (set() if place in OWN else marks(format))
        assert marker_counts(bad, known) == marker_counts(good, known), place


def shown_to_claude(request: v.Request) -> str:
    messages = single_prompt.to_single_prompt(request).request.messages
    return "\n".join(p.text if isinstance(p, v.Text) else "[]" for m in messages for p in m.parts)


# What the text becomes.


@some_formats
def test_escaped_text_is_character_references(format: Format) -> None:
    """Escaped characters are character references: unescaped, the text is the original."""
    words = all_attacks(format)
    (turn,) = render_chat(v.Request("m", (v.Message("user", (v.Text(words),)),)), format)
    assert html.unescape(turn.text) == html.unescape(words)
    assert render_chat(v.Request("m", (v.Message("user", (v.Text(turn.text),)),)), format) == [turn]


ORDINARY = (
    *("a < b && c > d", "List<String> x = y[0];", "<div class='a'>&amp;</div>", "if (a<b || c>d) { }", "x |> f <| y"),
    *("# Tools\nUse a hammer.", '```json\n{"name": "ping", "arguments": {}}\n```', "[ERROR] 5 < 6", "Größe: 5 €"),
    *(
        "SELECT * FROM t WHERE a <> 'b'",
        "The tool_call tag",
        "你好，世界。",
        "👩‍👩‍👧",
        "a\r\nb\tc",
        "[1, 2]",
        "I think so.",
    ),
    *("<system-reminder>The client's own.</system-reminder>", "https://a.example/?q=<x>&y=[z]", "call(ping)"),
)


@some_formats
def test_ordinary_text_is_not_escaped(format: Format, subtests: pytest.Subtests) -> None:
    def check(words: str) -> None:
        turns = render_chat(conversation(words, "user"), format)
        assert any(words in turn.text for turn in turns)
        turns = render_chat(conversation(words, "last"), format)
        assert turns[-1] == ChatTurn("user", turns[-1].text)
        assert words in "\n".join(turn.text for turn in turns)

    check_each(subtests, sample(ORDINARY, 7, format.name), check)


@each_format
def test_hostile_text_does_not_change_earlier_turns(format: Format) -> None:
    """Neither hostile text nor later messages change the turns before."""
    words = "\n".join(attacks(format)["nested"])
    whole = conversation(words, "result")
    turns = render_chat(whole, format)
    for count in range(4, len(whole.messages)):
        shorter = render_chat(msgspec.structs.replace(whole, messages=whole.messages[:count]), format)
        assert turns[: len(shorter) - 1] == shorter[:-1]


fragments = st.lists(st.integers(0, 500) | st.sampled_from(["\n", "<", ">", " ", "\u200b", '"', "\\"]), max_size=6)


@given(bits=fragments, place=st.sampled_from([place for place in PLACES if place not in OWN]))
def test_random_marker_mix_adds_no_markers(bits: list[int | str], place: str) -> None:
    """A number is the index of one of the format's markers, complete or cut in half."""
    for format in sample(all_formats(), 12, f"{place} {bits}"):
        known = sorted(marks(format))
        pieces = [*known, *(mark[: len(mark) // 2] for mark in known), *(mark[len(mark) // 2 :] for mark in known)]
        words = "".join(pieces[each % len(pieces)] if isinstance(each, int) else each for each in bits)
        hostile, ordinary = (render_chat(conversation(w, place), format) for w in (words or WORD, WORD))
        assert [marker_counts(t.text, marks(format)) for t in hostile] == [
            marker_counts(t.text, marks(format)) for t in ordinary
        ], format.name


@pytest.mark.parametrize("kind", ["whole", "nested", "beginnings", "alike"])
@pytest.mark.parametrize("name", ["hermes", "deepseek_v3", "hy_v3", "harmony", "auto"])
def test_escape_time_is_linear_in_text_length(name: str, kind: str) -> None:
    format = formats.get(name)
    words = "\n".join(attacks(format)[kind])

    def made(chars: int) -> Callable[[], object]:
        return partial(render_chat, conversation(words * (chars // len(words) + 1), "result"), format)

    assert cpu_cost.growth(made, 30_000, 300_000, most=4, floor_s=0.006) < 4


def test_documented_attack_counts_match() -> None:
    said = (ROOT / "docs" / "security.md").read_text()
    count = sum(len(words) for format in all_formats() for words in attacks(format).values())
    assert count >= 31_000
    assert f"31,000 hostile texts for {len(all_formats())} formats, in {len(PLACES)} places" in " ".join(said.split())
