"""Tool calls that a server leaves in the text ("leaked") are recovered in every format; look-alikes stay text."""

import itertools
import json
import logging
import random
import re
from collections.abc import AsyncIterator, Iterable, Sequence
from operator import itemgetter
from typing import Any, NamedTuple

import pytest
import pytest_asyncio
from bench import forty
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from dragoman import dialects, formats
from dragoman.backends.text_mode import request as text_mode_request
from dragoman.backends.text_mode.leaked_calls import LeakDetector
from dragoman.backends.text_mode.quoted_text import QuotedText
from dragoman.core.backend import ExchangeContext
from dragoman.core.collect import Collector
from dragoman.core.events import (
    AnyEvent,
    Finish,
    Start,
    TextDelta,
    ToolCallDelta,
    ToolCallEnd,
    ToolCallStart,
    UsageUpdate,
)
from dragoman.core.messages import Message, Reasoning, Request, Text, ToolCall, ToolChoice, ToolResult, Usage
from dragoman.parsing.reply_reader import ReplyReader
from support.check_each import check_each
from support.chunking import cuttings, places
from support.fake_upstream import END, HEAD, Server, piece, server, whole
from support.format_cases import shown
from support.paths import DATA
from support.text_upstream import ARGUMENTS, ASKED, FRONTS, QUESTION, Answer, ask, cut, gateway, writes

PARIS = ("get_weather", {"city": "Paris", "days": 3})
CALL = f'<tool_call>\n{{"name": "get_weather", "arguments": {ARGUMENTS}}}\n</tool_call>'
PROSE = "I will look at the weather in Paris.\n"
BARE = f'{{"name": "get_weather", "arguments": {ARGUMENTS}}}'
LEAKED_FORMATS: dict[int, Sequence[str]] = {
    1: ["hermes"],
    2: ["llama3_json"],
    3: ["granite"],
    4: ["granite_20b_fc"],
    5: ["mistral_v3"],
    6: ["phi4_mini"],
    7: ["internlm"],
    8: ["jamba", "hunyuan_a13b", "apriel", "minimax_m1"],
    9: ["nemotron_v2"],
    10: ["cohere", "command_r"],
    11: ["apertus"],
    12: ["gigachat3"],
    13: ["inkling"],
    14: ["ernie45", "longcat", "xlam"],
    15: [BARE, f"```json\n{BARE}\n```", f"```\n{BARE}\n```"],
    16: ["mistral"],
    17: ["deepseek_v3"],
    18: ["deepseek_v31"],
    19: ["kimi_k2"],
    20: ["harmony"],
    21: ["functionary_v31", "functionary_v32"],
    22: ["solar"],
    23: ["plamo3"],
    24: ["qwen3_xml", "seed_oss"],
    25: ["glm"],
    26: ["glm47"],
    27: ["hy_v3", "longcat_xml", "iquest", "k2_horizon"],
    28: ["deepseek_v32", "deepseek_v4", "deepseek_v41"],
    29: ["gigachat35"],
    30: ["minimax_m2"],
    31: ["minimax_m3"],
    32: ["dots", "muse_glimmer", "step3", "minicpm5", "beam"],
    33: ["kimi_k3"],
    34: ["cohere_cofl"],
    35: ["gemma4"],
    36: ["functiongemma"],
    37: ["pythonic", "lfm2", "olmo3"],
    38: ["solar_open2", "iquest_coder"],
    39: ["functionary_v2"],
    40: ["mirothinker", "pangu", "rwkv7", "step_audio2"],
    41: ["sarashina"],
    42: ["cwm"],
}
"""Formats and texts by model family; row 15 is what many models write instead of their own format."""
FORMATS_RECOVERED_ONLY_ALONE = ("pythonic", "functionary_v32", "beam", "muse_glimmer")
"""Formats whose calls have no unambiguous opener: after prose, they stay text."""


def written(name: str) -> str:
    """The text of a call with two arguments, in this format."""
    if name not in formats.names():
        return name
    return formats.get(name).write_calls([ToolCall("a1B2c3D4e", "get_weather", ARGUMENTS)])


def test_leak_table_covers_all_formats() -> None:
    assert {name for names in LEAKED_FORMATS.values() for name in names} >= {*formats.names()} - {"auto"}


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def shared() -> AsyncIterator[Server]:
    async with server(writes("")) as behind, gateway(behind.url) as (behind.gateway, _):
        yield behind


@pytest.fixture
def far(shared: Server) -> Server:
    """A Chat Completions server with a gateway in front of it; tests set what its model writes."""
    shared.asked = []
    return shared


async def got(far: Server, text: str, request: Request = ASKED, front: str = "openai_chat", size: int = 3) -> Answer:
    far.play = writes(*cut(text, size))
    return await ask(far.gateway, front, request)


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize(("row", "name"), [(row, name) for row, names in LEAKED_FORMATS.items() for name in names])
async def test_leaked_call_is_recovered(row: int, name: str, far: Server) -> None:
    for front, size in zip(FRONTS, (1, 3, 1000), strict=True):
        text = written(name)
        alone = await got(far, text, replace(ASKED, stream=size == 3), front=front, size=size)
        assert (alone.calls, alone.text, alone.reply.finish_reason) == ([PARIS], "", "tool_calls")
        assert size == 3 or "leaked_call_recovered" in alone.warnings
        behind_prose = await got(far, PROSE + text, front=front, size=size)
        if name in FORMATS_RECOVERED_ONLY_ALONE:
            assert (behind_prose.text, behind_prose.calls) == (PROSE + text, [])
        else:
            assert (behind_prose.text.strip(), behind_prose.calls) == (PROSE.strip(), [PARIS])
            assert behind_prose.reply.finish_reason == "tool_calls"


# Look-alikes


class LookAlike(NamedTuple):
    title: str
    text: str
    said: str
    """The caller's text that contains the quote, if any."""
    by: str

    @property
    def request(self) -> Request:
        """The request to which the text responds."""
        match self.by:
            case "user":
                return replace(ASKED, messages=(Message("user", (Text(self.said),)),))
            case "system":
                return replace(ASKED, messages=(Message("system", (Text(self.said),)), QUESTION))
            case "result":
                call = Message("assistant", (ToolCall("c1", "ping", "{}"),))
                return replace(
                    ASKED, messages=(QUESTION, call, Message("tool", (ToolResult("c1", (Text(self.said),)),)))
                )
            case _:
                return ASKED


def look_alikes() -> Iterable[LookAlike]:
    """`=== title`, the model's text; for a quote also `--- user`, `system` or `result`, and the caller's text."""
    for block in (DATA / "lookalikes.txt").read_text().split("=== ")[1:]:
        title, _, rest = block.partition("\n")
        text, _, said = rest.partition("\n--- ")
        by, _, said = said.partition("\n")
        text = text.removesuffix("\n")
        yield LookAlike(title, text.replace("\n", "\r\n") if title.startswith("Windows") else text, said, by)


LOOK_ALIKES = list(look_alikes())


def test_look_alikes_are_many_and_unique() -> None:
    assert len(LOOK_ALIKES) >= 200
    assert len({each.title for each in LOOK_ALIKES}) == len({each.text for each in LOOK_ALIKES}) == len(LOOK_ALIKES)


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize("n", range(len(LOOK_ALIKES)), ids=lambda n: LOOK_ALIKES[n].title)
async def test_look_alike_of_a_call_stays_text(n: int, far: Server) -> None:
    each = LOOK_ALIKES[n]
    thinks = each.text.startswith("<think>")
    said = each.text.partition("</think>")[2].lstrip() if thinks else each.text
    for size in (1, 1000):
        answer = await got(far, each.text, each.request, FRONTS[n % 3], size)
        assert (answer.text, answer.calls, answer.reply.finish_reason) == (said, [], "stop")
        assert "leaked_call_recovered" not in answer.warnings


# When a call is emitted


def leak_detector(request: Request = ASKED, **how: bool) -> LeakDetector:
    ids = itertools.count()
    context = ExchangeContext("1", 0, lambda: f"{next(ids):024}")

    def new(name: str) -> ReplyReader:
        return text_mode_request.text_reader(formats.get(name), request, request.tools, context)

    return LeakDetector(new, QuotedText(request), **{"begins": True, **how})


def without_warnings(events: Iterable[AnyEvent]) -> list[str]:
    return [line for line in shown(events) if not line.startswith("warning")]


def test_leaked_call_on_its_own_line_is_streamed() -> None:
    reading, seen = leak_detector(), list[str]()
    for char in f"Sure.\n{CALL}":
        for event in reading.feed(char):
            seen.append(type(event).__name__)
            if isinstance(event, ToolCallDelta) and "P" in event.text:
                assert reading._candidate is None
    assert seen[:6] == ["TextDelta"] * 5 + ["Notice"]
    assert seen[6] == "ToolCallStart"
    assert seen.count("ToolCallDelta") > len(ARGUMENTS) / 2
    assert seen[-1] == "ToolCallEnd"


@pytest.mark.parametrize("text", [f"Sure: {CALL}", f"    {CALL}", BARE, f"```\n{BARE}\n```"])
def test_ambiguous_call_is_buffered_until_the_end(text: str) -> None:
    reading = leak_detector()
    events = reading.feed(text)
    assert reading._candidate is not None
    assert not [event for event in events if not isinstance(event, TextDelta)]
    assert without_warnings(reading.close())[-1] == f"call get_weather {ARGUMENTS}"


@pytest.mark.parametrize("call", [BARE, f"```json\n{BARE}\n```", CALL, written("xlam")])
def test_leaked_call_after_reasoning_is_recovered(call: str) -> None:
    thoughts = f"<think>\nI could write\n{CALL}\nor not.\n</think>\n\n"
    reading = leak_detector()
    told = without_warnings([*(event for char in thoughts + call for event in reading.feed(char)), *reading.close()])
    assert told == [f"reasoning {json.dumps(thoughts[8:-11])}", f"call get_weather {ARGUMENTS}"]


HARMONY = f"<|channel|>commentary to=functions.get_weather <|constrain|>json<|message|>{ARGUMENTS}<|call|>"
LEFT = {
    "reasoning": ("<think>Hm.</think>\n\nSunny.", "Hm.", "Sunny.", 0),
    "reasoning, then a call": (f"<think>\nHm.\n</think>\n{CALL}", "Hm.", "", 1),
    "reasoning twice": ("<think>Hm.</think><think>x</think>", "Hm.", "<think>x</think>", 0),
    "reasoning that never ends": ("<think>Hm.", "Hm.", "", 0),
    "a tag in text": ("Write <think>x</think> so.", "", "Write <think>x</think> so.", 0),
    "a harmony call behind text": (f"I look.<|end|><|start|>assistant{HARMONY}", "", "I look.", 1),
    "a harmony call": (f"<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant{HARMONY}", "Hm.", "", 1),
    "a harmony answer": ("<|channel|>final<|message|>Sunny.<|return|>", "", "Sunny.", 0),
    "all of harmony": (
        "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>final<|message|>Sunny.<|return|>",
        "Hm.",
        "Sunny.",
        0,
    ),
    "an answer behind text": ("Hm.<|end|><|start|>assistant<|channel|>final<|message|>Sunny.", "", "Hm.Sunny.", 0),
    "the end": ("Sunny.<|end|>\n", "", "Sunny.", 0),
    "an end in text": ("It ends in <|end|> there.", "", "It ends in <|end|> there.", 0),
}


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize("title", LEFT)
async def test_leaked_reasoning_and_harmony_markup_are_parsed(title: str, far: Server) -> None:
    text, thought, said, calls = LEFT[title]
    for front, size, tools in itertools.product(FRONTS, (1, 1000), (True, False)):
        request = replace(ASKED, stream=size == 1, tools=ASKED.tools if tools else ())
        if not tools and (calls or not text.startswith("<")):
            continue
        answer = await got(far, text, request, front=front, size=size)
        thoughts = "".join(part.text for part in answer.reply.parts if isinstance(part, Reasoning))
        assert (thoughts.strip(), answer.text.strip(), len(answer.calls)) == (thought, said, calls), front


def test_marker_quoted_from_request_stays_text() -> None:
    request = replace(ASKED, messages=(Message("user", (Text("What is <|end|>, and <|channel|>?"),)),))
    for text in ("It is <|end|>", "<|channel|>final<|message|> begins an answer."):
        reading = leak_detector(request)
        assert without_warnings([*reading.feed(text), *reading.close()]) == [f"text {json.dumps(text)}"]


def test_call_in_unclosed_reasoning_is_recovered() -> None:
    text = f"<think>\nI will look.\n{CALL}"
    reading = leak_detector()
    assert without_warnings([*reading.feed(text), *reading.close()])[-1] == f"call get_weather {ARGUMENTS}"


def test_plain_text_is_not_buffered() -> None:
    reading = leak_detector()
    assert without_warnings(reading.feed("<thing")) == ['text "<thing"']
    for word in ("It", " rains", " in", " Paris", "."):
        assert without_warnings(reading.feed(word)) == [f'text "{word}"']


def test_chunking_does_not_change_recovered_calls(subtests: pytest.Subtests) -> None:
    def check(case: tuple[str, str]) -> None:
        _, text = case

        def read(pieces: Iterable[str]) -> list[str]:
            reading = leak_detector()
            return without_warnings([*(event for piece in pieces for event in reading.feed(piece)), *reading.close()])

        for before in ("", PROSE):
            whole = read([before + text])
            for seed in range(3):
                chance = random.Random(seed)
                places = sorted(chance.choices(range(len(before + text) + 1), k=6))
                assert read(pieces_at(before + text, places)) == whole
            assert read(before + text) == whole

    in_formats = [(name, written(name)) for names in LEAKED_FORMATS.values() for name in names]
    check_each(subtests, [*in_formats, *((each.title, each.text) for each in LOOK_ALIKES)], check, itemgetter(0))


FRAGMENTS = [
    *(
        "\n",
        "\n\n",
        " ",
        "   ",
        "`",
        "```",
        "```json\n",
        "~~~\n",
        "> ",
        "- ",
        '"',
        "[",
        "]",
        "{",
        "}",
        "words",
        "A",
        "to=",
    ),
    *(
        ">>>",
        "<think>",
        "</think>",
        "<tool_call>",
        "<tool_call>\n",
        "</tool_call>",
        "[TOOL_CALLS]",
        "ping",
        "[ARGS]",
        "{}",
    ),
    *(
        "<|channel|>",
        "<|start|>",
        "<function=ping>",
        "</function>",
        "functools[",
        "Action:",
        "<|python_tag|>",
        "[ping()]",
    ),
    *(CALL, BARE, '{"name": "ping", "arguments": {}}', '{"name": "ping", ', "<|tool_call>call:ping{}<tool_call|>"),
]


HARMONY = re.compile(r"\s*<\|(channel|start)\|>")
"""The beginning of harmony messages, whose headers are not part of the text."""
MARKS = re.compile(r"</?think>|\s+")
"""Tags and white space, which are ignored if the response begins with reasoning."""


@settings(max_examples=150)
@given(st.lists(st.sampled_from(FRAGMENTS), max_size=9).map("".join), places, st.sampled_from(["stop", "length"]))
def test_chunking_of_random_fragments_changes_and_loses_nothing(text: str, some: list[int], reason: Any) -> None:
    def read(pieces: Iterable[str]) -> list[AnyEvent]:
        reading = leak_detector()
        return [*(event for piece in pieces for event in reading.feed(piece)), *reading.close(reason)]

    whole, *others = [read(cut) for cut in cuttings(text, some)]
    assert all(without_warnings(other) == without_warnings(whole) for other in others)
    collector = Collector()
    for event in [Start("1", "m", 0), *whole, Finish("stop")]:
        collector.feed(event)
    if not (HARMONY.match(text) or any(isinstance(event, ToolCallStart) for event in whole)):
        parts = [part for part in collector.reply().parts if isinstance(part, Text | Reasoning)]
        told = "".join(part.text for part in parts)
        is_reasoning = text.lstrip().startswith("<think>")
        assert told == text or (is_reasoning and MARKS.sub("", told) == MARKS.sub("", text))


def test_calls_recorded_from_small_model_are_recovered() -> None:
    written = forty.recording()
    prompts = [prompt for prompt in forty.prompts() if prompt.tool]
    assert len(prompts) == 40
    for prompt in prompts:
        reading = leak_detector(forty.request(prompt))
        events = [*(event for char in written[prompt.ask] for event in reading.feed(char)), *reading.close()]
        assert any(isinstance(event, ToolCallEnd) for event in events), written[prompt.ask]


def pieces_at(text: str, places: Iterable[int]) -> list[str]:
    ends = [0, *places, len(text)]
    return [text[start:end] for start, end in itertools.pairwise(ends)]


def test_many_unclosed_openers_stay_text() -> None:
    text = "<tool_call>\n" * 5000
    reading = leak_detector()
    assert "".join(e.text for e in [*reading.feed(text), *reading.close()] if isinstance(e, TextDelta)) == text


@pytest.mark.asyncio(loop_scope="module")
async def test_quoted_call_stays_text_and_different_call_is_recovered(far: Server) -> None:
    told = Message("system", (Text(f"Call tools like this:\n{CALL.replace('Paris', 'Rome')}"),))
    asked = replace(ASKED, messages=(told, QUESTION))
    answer = await got(far, PROSE + CALL, asked)
    assert (answer.text.strip(), answer.calls) == (PROSE.strip(), [PARIS])
    quoted = await got(far, f"{CALL.replace('Paris', 'Rome')}\n{CALL}", asked)
    assert quoted.calls == [PARIS]
    assert "Rome" in quoted.text


@pytest.mark.asyncio(loop_scope="module")
async def test_several_leaked_calls_and_text_between_are_recovered(far: Server) -> None:
    text = f'{PROSE}{CALL}\n<tool_call>\n{{"name": "ping", "arguments": {{}}}}\n</tool_call>\nDone.'
    for front in FRONTS:
        answer = await got(far, text, front=front)
        assert (answer.calls, answer.reply.finish_reason) == ([PARIS, ("ping", {})], "tool_calls")
        assert answer.text.replace("\n", "") == PROSE.strip() + "Done."


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize("front", FRONTS)
@pytest.mark.parametrize("first", ["text", "server"])
async def test_leaked_and_native_duplicate_is_one_call(front: str, first: str, far: Server) -> None:
    async def play(server: Server, writer: Any) -> None:
        function = {"name": "get_weather", "arguments": '{"days":3,"city":"Paris"}'}
        native = piece({"tool_calls": [{"index": 0, "id": "call_7", "type": "function", "function": function}]})
        pieces = [piece({"content": CALL}), native]
        writer.write(HEAD + b"".join(pieces if first == "text" else reversed(pieces)) + piece({}, "tool_calls") + END)

    far.play = play
    answer = await ask(far.gateway, front)
    assert (answer.calls, answer.text, answer.reply.finish_reason) == ([PARIS], "", "tool_calls")


@pytest.mark.asyncio(loop_scope="module")
async def test_truncated_leaked_call_is_not_finished_as_tool_call(far: Server) -> None:
    half = CALL[: CALL.index("Paris") + 2]
    far.play = writes(*cut(half), finish="length")
    answer = await ask(far.gateway, "openai_chat", replace(ASKED, stream=True))
    assert answer.reply.finish_reason == "length"
    far.play = writes(*cut(f"So: {half}"), finish="length")
    talk = await ask(far.gateway, "openai_chat")
    assert (talk.text, talk.calls, talk.reply.finish_reason) == (f"So: {half}", [], "length")


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize("text", [f"Never write `{CALL}", f'It says "{CALL}', f"So: {CALL}", BARE, f"```\n{BARE}"])
async def test_buffered_call_stays_text_if_token_limit_ends_response(text: str, far: Server) -> None:
    for front in FRONTS:
        far.play = writes(*cut(text), finish="length")
        answer = await ask(far.gateway, front)
        assert (answer.text, answer.calls, answer.reply.finish_reason) == (text, [], "length")


@pytest.mark.parametrize("before", ["Never write `", "Of `a` and ``b`` only `x ", 'It says "', f"{'word ' * 99}`"])
@pytest.mark.parametrize("size", [1, 1000])
def test_call_in_open_quotation_stays_text(before: str, size: int) -> None:
    def read(text: str) -> list[AnyEvent]:
        reading = leak_detector()
        return [*(event for piece in cut(text, size) for event in reading.feed(piece)), *reading.close()]

    def called(text: str) -> bool:
        return any(isinstance(event, ToolCallStart) for event in read(text))

    closer = '"' if '"' in before else "`"
    assert not called(before + CALL)
    assert "".join(event.text for event in read(before + CALL) if isinstance(event, TextDelta)) == before + CALL
    assert called(f"{before}{closer} {CALL}")
    assert called(f"{before}\n{CALL}")


@pytest.mark.asyncio(loop_scope="module")
async def test_finish_reason_tool_calls_without_calls_becomes_stop(far: Server) -> None:
    far.play = writes("It rains.", finish="tool_calls")
    answer = await ask(far.gateway, "anthropic_messages")
    assert (answer.text, answer.reply.finish_reason) == ("It rains.", "stop")


THOUGHT = "I should look it up."


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize("front", FRONTS)
async def test_call_in_reasoning_field_is_recovered_if_nothing_follows(front: str, far: Server) -> None:
    def thinks(text: str, *more: dict[str, Any]) -> Any:
        async def play(server: Server, writer: Any) -> None:
            thoughts = b"".join(piece({"reasoning_content": some}) for some in cut(text))
            writer.write(HEAD + thoughts + b"".join(map(piece, more)) + piece({}, "stop") + END)

        return play

    def thoughts(answer: Answer) -> str:
        return "".join(part.text for part in answer.reply.parts if isinstance(part, Reasoning)).strip()

    far.play = thinks(f"{THOUGHT}\n{CALL}")
    answer = await ask(far.gateway, front)
    assert (thoughts(answer), answer.calls, answer.reply.finish_reason) == (THOUGHT, [PARIS], "tool_calls")
    far.play = thinks(f"{THOUGHT}\n{CALL}", {"content": "\n\n"})
    assert (await ask(far.gateway, front)).calls == [PARIS]
    for then in ({"content": "It rains."}, {"reasoning_content": "\nOr better not."}):
        far.play = thinks(f"{THOUGHT}\n{CALL}", then)
        answer = await ask(far.gateway, front)
        assert (answer.calls, answer.reply.finish_reason) == ([], "stop")
        assert thoughts(answer).startswith(f"{THOUGHT}\n{CALL}")


@pytest.mark.asyncio(loop_scope="module")
async def test_choice_none_or_response_schema_disables_recovery(far: Server) -> None:
    no_call = await got(far, CALL, replace(ASKED, tool_choice=ToolChoice("none")))
    assert (no_call.text, no_call.calls) == (CALL, [])
    wanted = await got(far, BARE, replace(ASKED, response_schema='{"type":"object"}'))
    assert (wanted.text, wanted.calls) == (BARE, [])


async def test_recovery_can_be_disabled() -> None:
    async with server(writes(*cut(CALL))) as behind, gateway(behind.url, recover_leaked_calls=False) as (url, _):
        answer = await ask(url, "openai_chat")
    assert (answer.text, answer.calls) == (CALL, [])


async def test_recovered_calls_are_counted_and_logged(caplog: pytest.LogCaptureFixture) -> None:
    text = f'{CALL}\n<tool_call>\n{{"name": "ping", "arguments": {{}}}}\n</tool_call>'
    with caplog.at_level(logging.INFO):
        async with server(writes(*cut(text))) as behind, gateway(behind.url) as (url, backend):
            for _ in range(2):
                await ask(url, "openai_chat")
            assert backend.health()["recovered_calls"] == 4
    lines = [r.getMessage() for r in caplog.records if r.name == "dragoman.backends.http"]
    assert len([line for line in lines if "leaves calls of m in the text" in line]) == 1
    records = [json.loads(r.getMessage()) for r in caplog.records if r.name == "dragoman.access"]
    assert [record["recovered_calls"] for record in records if record["status"] == 200] == [2, 2]


@pytest.mark.parametrize("api", FRONTS)
@pytest.mark.parametrize("front", FRONTS)
async def test_leaked_call_is_recovered_for_every_api_pair(api: str, front: str) -> None:
    def said(stream: bool) -> bytes:
        writer = dialects.get(api).writer(replace(ASKED, stream=True))
        events = [Start("1", "m", 0), *map(TextDelta, cut(PROSE + CALL)), UsageUpdate(Usage(9, 9)), Finish("stop")]
        return b"".join(map(writer.feed, events))

    play = whole(200, said(True).decode(), "text/event-stream")
    async with server(play) as behind, gateway(behind.url, api=api) as (url, _):
        answer = await ask(url, front)
    assert (answer.text.strip(), answer.calls, answer.reply.finish_reason) == (PROSE.strip(), [PARIS], "tool_calls")


@pytest.mark.parametrize("mode", ["parse", "prompt"])
async def test_leaked_call_in_another_format_is_recovered(mode: str) -> None:
    other = f"{PROSE}[TOOL_CALLS]get_weather[ARGS]{ARGUMENTS}"
    async with (
        server(writes(*cut(other))) as behind,
        gateway(behind.url, tool_mode=mode, call_format="hermes") as (url, _),
    ):
        answer = await ask(url, "openai_chat")
    assert (answer.text.strip(), answer.calls) == (PROSE.strip(), [PARIS])
    assert "leaked_call_recovered" in answer.warnings
