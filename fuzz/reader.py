"""Whatever a model writes, and however it is cut, a format's reader gives one legal stream and loses no text.

In full: nothing raises; the events of the whole text are those of its pieces; their order is legal; arguments are
at every moment the beginning of one JSON object; where no call began, the text comes back as it was; a text that was
cut off has no whole call but those that it has in full; buffering has the same text, and no other calls.

    python -m fuzz.reader --seconds 60 [--seed N]

What fails is made as small as it gets and printed as a case for `tests/data/formats/`.
"""

import random
import re
import sys
from collections.abc import Iterable
from pathlib import Path

import jiter

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

from dragoman import formats
from dragoman.core import events as ev
from dragoman.formats import auto
from dragoman.parsing.channels import Channels
from dragoman.parsing.format import Format
from fuzz.mutate import damaged, run, smallest, spliced
from support.format_cases import Case, all_cases, shown

CASES = all_cases()
WORDS = (
    *'{}[]":,\\`<>/_\n\t ',
    *(
        "\\u",
        "\\ud800",
        "\\n",
        "\x00",
        "\x1f",
        "\ud800",
        "é",
        "𝄞",
        "```",
        "```json\n",
        "null",
        "true",
        "-1e5",
        "True",
        "'",
        ",}",
        "// ",
        "\\'",
        '{"',
        '"}',
    ),
    *('{"name": "ping", "arguments": {}}', '"name": "', '"arguments": ', '"parameters": ', "<think>", "</think>"),
)
SPACE = " \t\r\n"


def attempt(chance: random.Random) -> str:
    """One mutated text against all that must hold; the failing case, or ""."""
    case = chance.choice(CASES)
    words = (*WORDS, *formats.get(case.format).markers)
    text = case.text
    if chance.random() < 0.3:
        text = spliced(text, chance.choice(CASES).text, chance)
    case = case.changed(text=damaged(text, words, chance))
    if chance.random() < 0.1:
        case = case.changed(format="auto")
    options = dict(case.options)
    if chance.random() < 0.2:
        options["lenient"] = ""
    if chance.random() < 0.2:
        options["reason"] = chance.choice(("stop", "length"))
    case = case.changed(options=options)
    seed = chance.randrange(2**32)
    if not (problem := wrong(case, seed)):
        return ""
    less = smallest(case.text, lambda text: bool(wrong(case.changed(text=text), seed)))
    case = case.changed(text=less)
    return f"{wrong(case, seed) or problem}\n\n{as_case(case, seed)}"


def wrong(case: Case, seed: int) -> str:
    """What does not hold, or ""."""
    try:
        whole = case.read([case.text])
        chance = random.Random(seed)
        cut = case.read(pieces(case.text, chance))
        problem = broken_stream(whole) or broken_stream(cut)
        if not problem and shown(whole, ids=True) != shown(cut, ids=True):
            problem = "a cut changes the events to\n" + "\n".join(shown(cut, ids=True))
        problem = problem or truncated(case, whole, chance) or buffered(case, whole)
    except Exception as error:  # noqa: BLE001 what may not raise is what this looks for
        return f"raised {error!r}"
    return problem or lost(case, whole)


def broken_stream(events: Iterable[ev.AnyEvent]) -> str:
    """Where order or arguments are not what they must be, or ""."""
    order, arguments = ev.EventOrder(), ""
    order.feed(ev.Start("id", "m", 0))
    for event in events:
        try:
            order.feed(event)
            match event:
                case ev.ToolCallStart():
                    arguments = ""
                case ev.ToolCallDelta(_, text):
                    arguments += text
                    if not arguments.startswith("{"):
                        return f"arguments begin with {arguments[:10]!r}"
                    jiter.from_json(arguments.encode(errors="replace"), partial_mode="trailing-strings")
                case ev.ToolCallEnd():
                    jiter.from_json(arguments.encode(errors="replace"))
        except (ev.EventOrderError, ValueError) as error:
            return f"{error} - at {event!r}, arguments {arguments!r}"
    return ""


def truncated(case: Case, whole: list[ev.AnyEvent], chance: random.Random) -> str:
    """What the beginning of the text, cut off, has for a whole call that the text does not have."""
    at = chance.randrange(len(case.text) + 1)
    fewer, all_ = whole_calls(case.changed(text=case.text[:at]).read([case.text[:at]], "length")), whole_calls(whole)
    return "" if fewer == all_[: len(fewer)] else f"cut off at {at}, it has the calls {fewer}, in full {all_}"


def buffered(case: Case, streamed: list[ev.AnyEvent]) -> str:
    """How buffered calls differ from streamed calls."""
    reader = case.reader(buffering="all")
    events = [*reader.feed(case.text), *reader.close(case.reason)]
    calls, all_ = whole_calls(events), whole_calls(streamed)
    held = case.reason == "length"  # a list that a limit cuts off is none
    if calls != all_ and not (held and calls == all_[: len(calls)]):
        return f"buffering has the calls {calls}, streamed {all_}"
    for kind in (ev.TextDelta, ev.ReasoningDelta):
        one, other = ("".join(e.text for e in events if isinstance(e, kind)) for events in (events, streamed))
        if one != other:
            return f"buffering has {one!r}, streamed {other!r}"
    return ""


def whole_calls(events: Iterable[ev.AnyEvent]) -> list[tuple[str, str]]:
    """Names and arguments of the calls that ended."""
    calls: list[tuple[str, str]] = []
    name = arguments = ""
    for event in events:
        match event:
            case ev.ToolCallStart():
                name, arguments = event.name, ""
            case ev.ToolCallDelta(_, text):
                arguments += text
            case ev.ToolCallEnd():
                calls.append((name, arguments))
    return calls


def lost(case: Case, events: Iterable[ev.AnyEvent]) -> str:
    """Whether text is missing where no call and no thought can have taken it."""
    if any(isinstance(e, ev.ToolCallStart | ev.ReasoningDelta) or _dropped(e) for e in events):
        return ""
    said = "".join(e.text for e in events if isinstance(e, ev.TextDelta))
    begun = case.options.get("tail", "") + case.text
    words = ("think", "thought", *_frames(formats.get(case.format)))
    framed = any(word.lower() in begun.lower() for word in words) or _headless(case, said)
    fine = framed or said == case.text or not case.text.strip(SPACE)
    return "" if fine else f"the text came back as {said!r}"


def _frames(format: Format) -> tuple[str, ...]:
    """What opens thoughts or the answer, and may hold nothing, and what only frames an answer."""
    markup = auto.markup() if format.name == "auto" else format.markup
    if not markup:
        return tuple(format.reasoning_tags)
    around = (*markup.answer_wrappers, *markup.answer_wrappers.values(), *markup.ignored_wrappers, *markup.boxes)
    return (*format.reasoning_tags, *markup.reasoning_tags, *around)


_HEADER = re.compile(r"(?:(?<!message)(?<!content)\|>|>>>)[^<]*")
"""A header of a message or section, from the end of the token that opens it to the next token."""


def _headless(case: Case, said: str) -> bool:
    """Whether this is the text without headers: the same characters in order, no more missing than headers can hold."""
    messages = isinstance(getattr(formats.get(case.format).read, "__self__", None), Channels)
    most = 0
    if messages or case.format == "auto":
        most = 40 * (1 + case.text.count("|>") + case.text.count(">>>")) + sum(map(len, _HEADER.findall(case.text)))
    rest = iter(case.text)
    return 0 < len(case.text) - len(said) <= most and all(char in rest for char in said)


def _dropped(event: ev.AnyEvent) -> bool:
    """A warning holds what is not passed on: the beginning of a call that a limit cut off, markup around nothing."""
    codes = (
        "builtin_tool_dropped",
        "truncated_call",
        "empty_call_section",
        "text_between_calls_dropped",
        "stray_closing_tag",
        "unknown_header",
    )
    return isinstance(event, ev.Notice) and event.code in codes


def pieces(text: str, chance: random.Random) -> list[str]:
    """Random pieces, or single characters."""
    most, cut = chance.choice((1, 4, 9, 60)), []
    while text:
        size = chance.randint(1, most)
        cut.append(text[:size])
        text = text[size:]
    return cut


def as_case(case: Case, seed: int) -> str:
    """As it can be pasted; the expected events are those of today's whole text, and to be put right by hand."""
    try:
        expected = shown(case.read([case.text]))
    except Exception as error:  # noqa: BLE001 see above
        expected = [f"raises {type(error).__name__}"]
    options = "".join(f"{k}: {v}\n" if v else f"{k}\n" for k, v in case.options.items())
    cut = pieces(case.text, random.Random(seed))
    return f"# …\n{options}{case.text}\n---\n" + "\n".join(expected) + f"\n\n({case.format}; cut as {cut!r})"


if __name__ == "__main__":
    sys.exit(run(__doc__ or "", attempt))
