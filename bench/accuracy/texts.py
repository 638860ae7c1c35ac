"""Texts of models: stored as one line of JSON each, and replayed to readers and guard."""

import itertools
import time
from collections.abc import Sequence
from contextlib import aclosing
from importlib.metadata import version
from pathlib import Path

import msgspec

from dragoman import __version__, formats
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


class RecordedText(msgspec.Struct, frozen=True, omit_defaults=True):
    """One completion of a model, and its cost."""

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


RUNGS = (
    "raw",
    "constrained",
    "again",
    "again_free",
    "told",
    "told_constrained",
    "told_again",
    "required",
    "asked",
    "words",
    "planned",
)
"""Free choice without a grammar; with the backend's grammar for free choice; re-asked if one of those (`again_free`:
the first) has a call that cannot be repaired. Outside the ladder: with an instruction when to call; and with a required
call, constrained from the first token, for prompts that need one call. `asked`: the probabilities of how many calls are
needed, as JSON; `words`: constrained to words, if the probability of a call is below the model's threshold; `planned`:
constrained to several calls, if their probability is above the model's threshold."""
FOLDER = Path(__file__).parents[2] / "tests" / "data" / "accuracy"
"""Folder of the recordings; a file for each model."""


def recording_head(how: str, model: str, settings: str) -> dict[str, str]:
    """Returns the first line of a recording: how it was made, and with what.

    Args:
        how: the command.
        model: name of a known model.
        settings: those of the generation, for people.
    """
    return {
        "how": how,
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
        "model": model,
        "weights_sha256": model_catalog.get(model).sha256,
        "dragoman": __version__,
        "engine": f"xllamacpp {version('xllamacpp')}",
        "settings": settings,
    }


def write_recording(model: str, texts: Sequence[RecordedText], settings: str) -> None:
    """Stores the texts for the tests, without repeated texts and measurements of that day.

    The first line describes how they were generated.
    """
    head = recording_head("python -m bench.accuracy --record", model, settings)
    rows = [msgspec.structs.replace(each, model="", seconds=0.0, prompt_sha256="") for each in texts]
    rows.sort(key=lambda each: (each.id, RUNGS.index(each.rung)))
    rows = [msgspec.structs.replace(each, text="") if each.unchanged else each for each in rows]
    FOLDER.mkdir(parents=True, exist_ok=True)
    lines = [msgspec.json.encode(each) + b"\n" for each in (head, *rows)]
    (FOLDER / f"{model}.jsonl").write_bytes(b"".join(lines))


def recording(model: str) -> Path:
    """Returns the file of the recording of a model."""
    return FOLDER / f"{model}.jsonl"


def read_recording(path: Path) -> list[RecordedText]:
    """Returns the texts of a recording, whose first line names the model."""
    with path.open("rb") as lines:
        model = msgspec.json.decode(next(lines))["model"]
    texts = [msgspec.structs.replace(each, model=model) for each in read(path)]
    by_key: dict[tuple[str, str], RecordedText] = {}
    for each in texts:
        text = by_key[each.id, each.unchanged].text if each.unchanged else each.text
        by_key[each.id, each.rung] = msgspec.structs.replace(each, text=text)
    return [*by_key.values()]


def read(path: Path) -> list[RecordedText]:
    """Returns all texts of a file, none if it does not exist."""
    lines = path.read_bytes().splitlines() if path.exists() else []
    return [msgspec.json.decode(line, type=RecordedText) for line in lines if line.startswith(b'{"id"')]


def exchange_context() -> ExchangeContext:
    """Returns a context with numbered ids."""
    ids = itertools.count()
    return ExchangeContext("turn", 0, lambda: f"{next(ids):024}")


def guarded(backend: Backend, request: Request, policy: GuardPolicy) -> EventStream:
    """Returns the backend's response behind the guard."""
    stages = EventPipeline([ToolCallGuard(request, policy)])
    attempt = BackendAttempt(
        generate=backend.generate,
        request=request,
        context=exchange_context(),
        pipeline=stages,
        reask_timeout_s=policy.reask_timeout_s,
    )

    async def only_attempt(error: DragomanError | None) -> BackendAttempt:
        if error is not None:
            raise error
        return attempt

    return stream_response(only_attempt)


class TextsBackend(Backend):
    """A scripted backend with these texts, one for each response; `live` generates further ones."""

    def __init__(self, texts: Sequence[RecordedText], *, lenient: bool = True, live: Backend | None = None) -> None:
        self._texts = list(texts)
        self._lenient = lenient
        self._live = live

    @property
    def remaining(self) -> int:
        """Returns the number of texts that were not requested."""
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

    def _events(self, text: RecordedText, request: Request, context: ExchangeContext) -> list[AnyEvent]:
        format = formats.get(model_catalog.get(text.model).format)
        options = ReaderOptions(lenient=self._lenient, used_ids=call_ids(request))
        reader = ReplyReader(format, request.tools, new_id=context.new_id, options=options)
        repeats = RepeatStopper((), format.write_call)
        repeats.cut_off = text.finish == "length"
        read = [*reader.feed(text.text), *reader.close("length" if repeats.cut_off else "stop")]
        usage = UsageUpdate(Usage(text.input_tokens, text.output_tokens, text.cached_tokens))
        return [*repeats.feed(read), usage]

    def models(self) -> Sequence[ServedModel]:
        """Returns nothing: models are not requested by name."""
        return ()

    def health(self) -> dict[str, object]:
        """Reports that it is ready."""
        return {"ready": True}
