"""The case in one number, from the recording: every cut of the model's text gives the same calls."""

import random

import pytest
from bench import forty

from dragoman.core.backend import ExchangeContext
from support.recorded_backend import RecordedBackend

PROMPTS = forty.prompts()
FITTING = [p for p in PROMPTS if p.tool]
RAW = forty.recording()


def random_pieces(text: str) -> list[str]:
    chance, pieces = random.Random(text), []
    while text:
        size = chance.randint(1, 9)
        pieces.append(text[:size])
        text = text[size:]
    return pieces


def test_recording_answers_every_prompt() -> None:
    assert len(FITTING) == 40
    assert [p.ask for p in PROMPTS] == list(RAW)


@pytest.mark.parametrize("cut", [lambda text: [text], list, random_pieces], ids=["whole", "characters", "random"])
def test_forty_become_calls(cut) -> None:  # type: ignore[no-untyped-def]
    total = forty.count(forty.Answer(p, RAW[p.ask], forty.calls_in(cut(RAW[p.ask]))) for p in FITTING)
    assert total == forty.Count(asked=40, tagged=0, strict=0, called=40, named=37, valid=37, right=36)


@pytest.mark.parametrize("prompt", PROMPTS, ids=lambda p: p.ask)
async def test_replayed_as_a_backend(prompt: forty.Prompt) -> None:
    backend = RecordedBackend.of(forty.FOLDER / "recording.jsonl", piece_chars=3)
    context = ExchangeContext("1", 0, lambda: "a" * 24)
    events = [event async for event in backend.generate(forty.request(prompt), context)]
    seen = [(c.name, c.arguments) for c in forty.whole_calls(events)]
    assert seen == [(c.name, c.arguments) for c in forty.calls_in([RAW[prompt.ask]])]


def test_one_call_where_one_is_required() -> None:
    texts = forty.required_recording()
    assert [*texts] == [p.ask for p in PROMPTS]
    assert {len(each) for each in texts.values()} == {1}, "one generation an answer"
    made = {p.ask: forty.calls_in(texts[p.ask]) for p in FITTING}
    assert {len(calls) for calls in made.values()} == {1}
    total = forty.count(forty.Answer(p, texts[p.ask][0], made[p.ask]) for p in FITTING)
    assert total == forty.Count(asked=40, tagged=40, strict=40, called=40, named=37, valid=37, right=35)


def test_facts_are_checked() -> None:
    """A wrong value, a missing one and a wrong kind are no right answer."""
    assert forty.holds({"city": "Paris, France", "days": 3, "on": True}, {"city": "paris", "days": 3, "on": True})
    assert not forty.holds({"city": "London"}, {"city": "Paris"})
    assert not forty.holds({}, {"city": "Paris"})
    assert not forty.holds({"days": "3"}, {"days": 3})
    assert forty.holds({"expression": "2 * 3"}, {"expression": ["2", "3"]})
