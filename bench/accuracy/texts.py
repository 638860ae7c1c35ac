"""Texts of models: stored in a line each, and replayed to readers and guard."""

import itertools
import time
from collections.abc import Sequence
from contextlib import aclosing
from importlib.metadata import version
from pathlib import Path

import msgspec

from dragoman import formats
from dragoman.backends.embedded.small_models import RepeatStopper
from dragoman.catalog import models as model_catalog
from dragoman.core.backend import Backend, EventStream, ExchangeContext, ServedModel
from dragoman.core.errors import DragomanError
from dragoman.core.events import AnyEvent, Finish, Start, UsageUpdate
from dragoman.core.identifiers import call_ids
from dragoman.core.messages import Request, Usage
from dragoman.core.stage import EventPipeline
from dragoman.gateway.response_stream import BackendAttempt, stream_response
from dragoman.guard.guard import ToolCallGuard
from dragoman.guard.policy import GuardPolicy
from dragoman.parsing.reader_options import ReaderOptions
from dragoman.parsing.reply_reader import ReplyReader


class Written(msgspec.Struct, frozen=True, omit_defaults=True):
    """One text."""

    id: str
    """Id of the prompt."""
    rung: str
    finish: str
    """stop or length; over: the reader ended it."""
    input_tokens: int
    cached_tokens: int
    """Prompt tokens that were cached from an earlier prompt."""
    output_tokens: int
    cpu_s: float
    """CPU seconds of the engine's process."""
    text: str = ""
    model: str = ""
    seconds: float = 0.0
    prompt_sha256: str = ""
    """Beginning of the digest of the engine's input."""
    unchanged: str = ""
    """Rung with the same text: its prompt is equal, or the grammar allows all of the text, so the model would write it
    again at temperature 0."""


RUNGS = ("raw", "constrained", "again", "again_free", "told", "told_constrained", "told_again", "required")
"""Free choice without a grammar; with the backend's grammar for free choice; re-asked if one of those (`again_free`:
the first) has a call that cannot be repaired. Outside the ladder: with an instruction when to call; and with a required
call, constrained from the first token, for prompts that need one call."""
FOLDER = Path(__file__).parents[2] / "tests" / "data" / "accuracy"
"""Folder of the recordings; a file for each model."""


def record(model: str, texts: Sequence[Written], settings: str) -> None:
    """Stores the texts for the tests, without repeated texts and measurements of that day.

    The first line describes how they were generated.
    """
    head = {
        "how": "python -m bench.accuracy --record",
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
        "model": model,
        "weights_sha256": model_catalog.get(model).sha256,
        "engine": f"xllamacpp {version('xllamacpp')}",
        "settings": settings,
    }
    kept = [msgspec.structs.replace(each, model="", seconds=0.0, prompt_sha256="") for each in texts]
    kept.sort(key=lambda each: (each.id, RUNGS.index(each.rung)))
    kept = [msgspec.structs.replace(each, text="") if each.unchanged else each for each in kept]
    FOLDER.mkdir(parents=True, exist_ok=True)
    lines = [msgspec.json.encode(each) + b"\n" for each in (head, *kept)]
    (FOLDER / f"{model}.jsonl").write_bytes(b"".join(lines))


def recorded(model: str) -> list[Written]:
    """Returns the texts of a recording."""
    texts = [msgspec.structs.replace(each, model=model) for each in read(FOLDER / f"{model}.jsonl")]
    whole: dict[tuple[str, str], Written] = {}
    for each in texts:
        text = whole[each.id, each.unchanged].text if each.unchanged else each.text
        whole[each.id, each.rung] = msgspec.structs.replace(each, text=text)
    return [*whole.values()]


def read(path: Path) -> list[Written]:
    """Returns all texts of a file, none if it does not exist."""
    lines = path.read_bytes().splitlines() if path.exists() else []
    return [msgspec.json.decode(line, type=Written) for line in lines if line.startswith(b'{"id"')]


def exchange_context() -> ExchangeContext:
    """Returns a context with numbered ids."""
    ids = itertools.count()
    return ExchangeContext("turn", 0, lambda: f"{next(ids):024}")


def guarded(backend: Backend, request: Request, policy: GuardPolicy) -> EventStream:
    """Returns the backend's response behind the guard."""
    stages = EventPipeline([ToolCallGuard(request, policy)])
    attempt = BackendAttempt(backend.generate, request, exchange_context(), stages, policy.reask_timeout_s)

    async def only_attempt(error: DragomanError | None) -> BackendAttempt:
        if error is not None:
            raise error
        return attempt

    return stream_response(only_attempt)


class Said(Backend):
    """A scripted backend with these texts, one for each response; `live` generates further ones."""

    def __init__(self, texts: Sequence[Written], *, lenient: bool = True, live: Backend | None = None) -> None:
        self._texts = list(texts)
        self._lenient = lenient
        self._live = live

    @property
    def left(self) -> int:
        """Returns the texts that were not requested."""
        return len(self._texts)

    async def generate(self, request: Request, context: ExchangeContext) -> EventStream:
        """Yields the next text's events; without one, only start and finish."""
        if not self._texts and self._live:
            async with aclosing(self._live.generate(request, context)) as events:
                async for batch in events:
                    yield batch
            return
        read = self._events(self._texts.pop(0), request, context) if self._texts else []
        yield [Start(context.id, request.model, context.created), *read, Finish("stop")]

    def _events(self, written: Written, request: Request, context: ExchangeContext) -> list[AnyEvent]:
        format = formats.get(model_catalog.get(written.model).format)
        options = ReaderOptions(lenient=self._lenient, used_ids=call_ids(request))
        reader = ReplyReader(format, request.tools, new_id=context.new_id, options=options)
        repeats = RepeatStopper((), format.write_call)
        repeats.cut_off = written.finish == "length"
        read = [*reader.feed(written.text), *reader.close("length" if repeats.cut_off else "stop")]
        usage = UsageUpdate(Usage(written.input_tokens, written.output_tokens, written.cached_tokens))
        return [*repeats.feed(read), usage]

    def models(self) -> Sequence[ServedModel]:
        """Returns nothing: models are not requested by name."""
        return ()

    async def refresh_models(self) -> None:
        """Does nothing: the models are fixed."""

    async def count_tokens(self, request: Request) -> int | None:
        """Returns None: it does not count tokens."""

    async def start(self) -> None:
        """Reports that it is ready."""

    async def close(self) -> None:
        """Does nothing."""

    def health(self) -> dict[str, object]:
        """Reports that it is ready."""
        return {"ready": True}
