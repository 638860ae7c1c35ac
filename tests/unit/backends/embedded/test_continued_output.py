"""Completions whose engine fails: what it is sent next, and how often."""

from collections.abc import AsyncGenerator, Mapping
from typing import Any

import pytest

from dragoman.backends.embedded.continued_output import continued_output
from dragoman.backends.embedded.engine_output import Done, Output, Progress, TokenText
from dragoman.core.errors import BackendUnavailableError, DragomanError, RequestError

pytestmark = pytest.mark.asyncio

TEXT = "abcdefghij"
ENDED = BackendUnavailableError("the embedded engine ended")


class Engine:
    """Writes a text, one character for a token; fails at these positions of it, one for each request."""

    def __init__(self, *positions: int, error: Exception = ENDED) -> None:
        self._positions, self._error = list(positions), error
        self.sent: list[tuple[Mapping[str, Any], bool]] = []
        self.failures: list[DragomanError] = []
        """The errors after which the text was continued."""

    async def complete(self, body: Mapping[str, Any], admitted: bool) -> AsyncGenerator[Output, None]:
        self.sent.append((body, admitted))
        begin = len(body["prompt"]) - 1
        end = self._positions.pop(0) if self._positions else len(TEXT)
        yield Progress(begin + 1, 0)
        for char in TEXT[begin : min(end, begin + body["n_predict"])]:
            yield TokenText(char)
        if end < len(TEXT):
            raise self._error
        yield Done("stop", end - begin, 0)


async def outputs(engine: Engine, limit: int = 99, prompt: Any = ">") -> list[Output]:
    body = {"prompt": prompt, "n_predict": limit, "grammar": "g"}
    running = continued_output(
        engine.complete, body, lambda text: {"n_predict": limit}, engine.failures.append, admitted=False
    )
    return [output async for output in running]


def text(found: list[Output]) -> str:
    return "".join(output.text for output in found if isinstance(output, TokenText))


async def test_text_becomes_end_of_next_prompt() -> None:
    engine = Engine(3, 3)
    found = await outputs(engine)
    assert (text(found), found[-1], engine.failures) == (TEXT, Done("stop", 10, 0), [ENDED, ENDED])
    assert engine.sent == [
        ({"prompt": ">", "n_predict": 99, "grammar": "g"}, False),
        ({"prompt": ">abc", "n_predict": 96}, True),
        ({"prompt": ">abc", "n_predict": 96}, True),
    ]


async def test_failing_engine_gets_the_request_four_times_at_most() -> None:
    engine = Engine(*range(2, 9))
    with pytest.raises(BackendUnavailableError):
        await outputs(engine)
    assert len(engine.sent) == 4


async def test_engine_that_writes_nothing_gets_the_request_twice_at_most() -> None:
    engine = Engine(0, 0, 0)
    with pytest.raises(BackendUnavailableError):
        await outputs(engine)
    assert len(engine.sent) == 2


async def test_token_limit_that_is_reached_ends_the_text() -> None:
    engine = Engine(4)
    found = await outputs(engine, 4)
    assert (text(found), found[-1], len(engine.sent)) == ("abcd", Done("length", 4, 0), 1)


async def test_error_of_the_request_is_not_continued() -> None:
    engine = Engine(4, error=RequestError("wrong"))
    with pytest.raises(RequestError):
        await outputs(engine)
    assert len(engine.sent) == 1


async def test_text_follows_the_last_image() -> None:
    class Images(Engine):
        async def complete(self, body: Mapping[str, Any], admitted: bool) -> AsyncGenerator[Output, None]:
            joined = body | {"prompt": ">" + body["prompt"][-1]}
            async for output in super().complete(joined, admitted):
                yield output
            self.sent[-1] = (body, admitted)

    engine = Images(3)
    assert text(await outputs(engine, prompt=("a", ""))) == TEXT
    assert engine.sent[-1][0]["prompt"] == ["a", "abc"]
