"""Questions to the real engine."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from dragoman.backends.embedded.embedded_model import EmbeddedModel
from dragoman.backends.embedded.questions.ask import ask
from dragoman.core.errors import QueueFullError
from support.scripted_llama import backend

pytestmark = [pytest.mark.model, pytest.mark.asyncio(loop_scope="module")]

TEXT = "".join(f"{number} and {number} is {2 * number}. " for number in range(1, 40))
BODY: dict[str, Any] = {"prompt": TEXT, "cache_prompt": True, "n_predict": 8, "temperature": 0}


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def small() -> AsyncIterator[EmbeddedModel]:
    embedded = backend(context_window=2048, max_concurrency=1, max_queue=0)
    await embedded.start()
    yield embedded
    await embedded.close()


async def test_the_likelier_answer_wins_whatever_the_order(small: EmbeddedModel) -> None:
    for answers in ((" and", " yellow"), (" yellow", " and")):
        found = await ask(small.engine, BODY, "40", answers)
        assert found.best == " and"
        assert found.output_tokens == 1
        assert sum(found.probabilities.values()) == pytest.approx(1)


async def test_the_response_finds_its_prompt_cached(small: EmbeddedModel) -> None:
    asked = await ask(small.engine, BODY, "Answer:", (" Yes", " No"))
    outputs = [output async for output in small.engine.complete(BODY)]
    assert outputs[-1].cached_tokens > 0.9 * asked.input_tokens  # type: ignore[union-attr]
    again = await ask(small.engine, BODY, "Answer:", (" Yes", " No"))
    assert again.cached_tokens > 0.9 * again.input_tokens
    assert again.probabilities == pytest.approx(asked.probabilities, abs=0.02)


async def test_a_cancelled_question_releases_its_slot(small: EmbeddedModel) -> None:
    asking = asyncio.create_task(ask(small.engine, BODY | {"prompt": TEXT[::-1]}, "?", (" Yes", " No")))
    while not small.engine.active:
        await asyncio.sleep(0)
    with pytest.raises(QueueFullError):
        await ask(small.engine, BODY, "?", (" Yes", " No"))
    asking.cancel()
    await asyncio.wait({asking})
    assert (await ask(small.engine, BODY, "Answer:", (" Yes", " No"), admitted=True)).output_tokens == 1
