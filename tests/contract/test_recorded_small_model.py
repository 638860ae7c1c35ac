"""The benchmark of 40 prompts, from its recording: chunking does not change the calls of the model's text."""

import random

import pytest
from bench import forty

from dragoman.core.backend import ExchangeContext
from support.check_each import check_each_async
from support.events import all_events
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


def test_recording_has_a_response_to_every_prompt() -> None:
    assert len(FITTING) == 40
    assert [p.ask for p in PROMPTS] == list(RAW)


@pytest.mark.parametrize("cut", [lambda text: [text], list, random_pieces], ids=["whole", "characters", "random"])
def test_recorded_texts_become_40_calls_with_any_chunking(cut) -> None:  # type: ignore[no-untyped-def]
    total = forty.count(forty.PromptResult(p, RAW[p.ask], forty.calls_in(cut(RAW[p.ask]))) for p in FITTING)
    assert total == forty.Count(prompts=40, tagged=0, strict=0, called=40, named=37, valid=37, right=36)


async def test_recorded_backend_emits_the_same_calls(subtests: pytest.Subtests) -> None:
    await check_each_async(subtests, PROMPTS, check_emits_same_calls, lambda prompt: prompt.ask)


async def check_emits_same_calls(prompt: forty.Prompt) -> None:
    backend = RecordedBackend.of(forty.FOLDER / "recording.jsonl", piece_chars=3)
    context = ExchangeContext("1", 0, lambda: "a" * 24)
    events = await all_events(backend.generate(forty.request(prompt), context))
    seen = [(c.name, c.arguments) for c in forty.complete_calls(events)]
    assert seen == [(c.name, c.arguments) for c in forty.calls_in([RAW[prompt.ask]])]


def test_required_recording_has_one_call_per_prompt() -> None:
    texts = forty.required_recording()
    assert [*texts] == [p.ask for p in PROMPTS]
    assert {len(each) for each in texts.values()} == {1}, "one generation an answer"
    made = {p.ask: forty.calls_in(texts[p.ask]) for p in FITTING}
    assert {len(calls) for calls in made.values()} == {1}
    total = forty.count(forty.PromptResult(p, texts[p.ask][0], made[p.ask]) for p in FITTING)
    assert total == forty.Count(prompts=40, tagged=40, strict=40, called=40, named=37, valid=37, right=35)


def test_arguments_are_compared_with_expected_facts() -> None:
    """Arguments are wrong if a value differs, is missing or has another type."""
    assert forty.holds({"city": "Paris, France", "days": 3, "on": True}, {"city": "paris", "days": 3, "on": True})
    assert not forty.holds({"city": "London"}, {"city": "Paris"})
    assert not forty.holds({}, {"city": "Paris"})
    assert not forty.holds({"days": "3"}, {"days": 3})
    assert forty.holds({"expression": "2 * 3"}, {"expression": ["2", "3"]})
