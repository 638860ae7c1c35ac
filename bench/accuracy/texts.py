"""What models wrote: kept a line a text, and said again to whatever reads and guards it."""

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
from dragoman.core.events import AnyEvent, Finish, Start, UsageUpdate
from dragoman.core.identifiers import call_ids
from dragoman.core.messages import Request, Usage
from dragoman.parsing.reader_options import ReaderOptions
from dragoman.parsing.reply_reader import ReplyReader


class Written(msgspec.Struct, frozen=True, omit_defaults=True):
    """One text."""

    id: str
    """Of the prompt."""
    rung: str
    finish: str
    """"stop" or "length"; "over" where the reader had enough."""
    input_tokens: int
    cached_tokens: int
    """Of them, read for an earlier prompt that began alike."""
    output_tokens: int
    cpu_s: float
    """Of the engine's process."""
    text: str = ""
    model: str = ""
    seconds: float = 0.0
    prompt_sha256: str = ""
    """The beginning of the digest of what the engine was sent."""
    unchanged: str = ""
    """The rung whose text this is: nothing else is asked, or the grammar lets all of it through, and then the same
    would be written again at temperature 0."""


RUNGS = ("raw", "constrained", "again", "again_free", "told", "told_constrained", "told_again", "required")
"""Asked with free choice and no grammar; with the grammar that the backend has for free choice; once more, where one of
those (`again_free`: the first) has a call that no mending makes right. Beside the ladder: told when to call; and with
one call required, which its grammar holds from the first token on: for prompts that want just one."""
FOLDER = Path(__file__).parents[2] / "tests" / "data" / "accuracy"
"""Where recordings are, a file a model."""


def record(model: str, texts: Sequence[Written], settings: str) -> None:
    """Keep these for the tests, without what is the same on a later rung, or only of the day.

    The first line says how it came about.
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
    """The texts of a recording, as they were."""
    texts = [msgspec.structs.replace(each, model=model) for each in read(FOLDER / f"{model}.jsonl")]
    whole: dict[tuple[str, str], Written] = {}
    for each in texts:
        text = whole[each.id, each.unchanged].text if each.unchanged else each.text
        whole[each.id, each.rung] = msgspec.structs.replace(each, text=text)
    return [*whole.values()]


def read(path: Path) -> list[Written]:
    """All texts of a file; none where there is no such file."""
    lines = path.read_bytes().splitlines() if path.exists() else []
    return [msgspec.json.decode(line, type=Written) for line in lines if line.startswith(b'{"id"')]


def exchange_context() -> ExchangeContext:
    """With ids that count."""
    ids = itertools.count()
    return ExchangeContext("turn", 0, lambda: f"{next(ids):024}")


class Said(Backend):
    """A backend that says these texts, one an answer, as the embedded one would; `live` is asked for any after them."""

    def __init__(self, texts: Sequence[Written], *, lenient: bool = True, live: Backend | None = None) -> None:
        self._texts = list(texts)
        self._lenient = lenient
        self._live = live

    @property
    def left(self) -> int:
        """Texts that nobody has asked for."""
        return len(self._texts)

    async def generate(self, request: Request, context: ExchangeContext) -> EventStream:
        """The next text's events; where there is none, and nobody to ask, none but the ends."""
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
        """None: it is not asked for by name."""
        return ()

    async def refresh_models(self) -> None:
        """It has no others."""

    async def count_tokens(self, request: Request) -> int | None:
        """It does not count."""

    async def start(self) -> None:
        """It is ready."""

    async def close(self) -> None:
        """There is nothing to end."""

    def health(self) -> dict[str, object]:
        """It is ready."""
        return {"ready": True}
