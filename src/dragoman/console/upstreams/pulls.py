"""Downloads of models, which run on when no page shows them.

Each download runs in a thread that ends with the process: what has arrived is kept, and the next download continues.
"""

import asyncio
import logging
import threading
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Final

from dragoman.backends.embedded import weights
from dragoman.backends.embedded.config import EmbeddedConfig
from dragoman.backends.embedded.weights.hub_choice import choose_from_hub
from dragoman.backends.embedded.weights.hub_repository import parse_repository
from dragoman.console.upstreams.views import PullNote, PullProgress, PullResult, PullView
from dragoman.core.errors import BackendUnavailableError, DragomanError, RequestError, quote

log = logging.getLogger("dragoman.console")

MAX_PULLS: Final = 2
"""Maximum number of downloads at once."""
TICK_S: Final = 0.25
"""Time between two events about the progress."""
_MAX_NAME_CHARS: Final = 300


class PullStoppedError(DragomanError):
    """A user stopped the download."""


class _Pull:
    """A download in its thread."""

    def __init__(self, model: str, config: EmbeddedConfig) -> None:
        self.model, self._config = model, config
        self.progress = PullProgress(step="starting", done_bytes=0, total_bytes=0, bytes_per_s=0.0, seconds_left=None)
        self.notes: list[PullNote] = []
        self.result: PullResult | None = None
        self.error: DragomanError | None = None
        self.is_stopped = False
        self.has_ended = False
        self._step_start = ("", 0.0, 0)
        """Of the current step its name, and when and with how many bytes it began."""
        self._thread = threading.Thread(target=self._run, name="dragoman-console-pull", daemon=True)

    def start(self) -> None:
        """Begins the download."""
        self._thread.start()

    def _run(self) -> None:
        try:
            self.result = self._download()
        except DragomanError as error:
            self.error = error
        except Exception:
            log.exception("bug: a download failed")
            self.error = BackendUnavailableError("internal error; the log of the gateway has it")
        finally:
            self.has_ended = True

    def _download(self) -> PullResult:
        model: weights.ModelName = self.model
        name = self.model
        if repository := parse_repository(self.model):
            choice = choose_from_hub(repository, self._config)
            self._note(choice.reason)
            model, name = choice.files, choice.files.name
        path = weights.download(model, self._on_progress, report=self._note)
        projector = weights.projector_path(path)
        return PullResult(model=name, path=str(path), projector=str(projector) if projector.is_file() else "")

    def _note(self, text: str) -> None:
        self.notes.append(PullNote(text=text))

    def _on_progress(self, done: int, total: int, what: str) -> None:
        """
        Raises: PullStoppedError: it is to stop; not in threads that only measure.
        """
        if self.is_stopped and threading.current_thread() is self._thread:
            raise PullStoppedError(f"the download of {self.model} was stopped; what has arrived is kept")
        now_s = time.monotonic()
        if what != self._step_start[0]:
            self._step_start = (what, now_s, done)
        _, began_s, first = self._step_start
        speed = (done - first) / (now_s - began_s) if now_s > began_s else 0.0
        self.progress = PullProgress(
            step=what,
            done_bytes=done,
            total_bytes=total,
            bytes_per_s=round(speed),
            seconds_left=round((total - done) / speed, 1) if speed and total else None,
        )


class Pulls:
    """The downloads of one gateway process."""

    def __init__(self, on_downloaded: Callable[[], Awaitable[None]]) -> None:
        """Args:
        on_downloaded: called after each download, to serve the model.
        """
        self._on_downloaded = on_downloaded
        self._running: dict[str, _Pull] = {}

    def views(self) -> list[PullView]:
        """Returns the running downloads."""
        return [PullView(model=pull.model, progress=pull.progress) for pull in self._alive().values()]

    def stop(self, model: str) -> bool:
        """Stops a download at its next bytes, and returns whether it is running."""
        pull = self._alive().get(model)
        if pull is not None:
            pull.is_stopped = True
        return pull is not None

    def begin(self, model: str, config: EmbeddedConfig) -> AsyncGenerator[tuple[str, object], None]:
        """Begins a download, or joins the running one of this name, and returns its events.

        Args:
            model: a name of the catalogue, or `hf:OWNER/REPO` with a quantization or file.
            config: the settings, for the memory that a model may need.

        Raises:
            RequestError: the name is empty or too long, or too many downloads are running.
        """
        if not 0 < len(model) <= _MAX_NAME_CHARS:
            raise RequestError(f"expected the name of a model, got {quote(model)} - at model")
        running = self._alive()
        pull = running.get(model)
        if pull is None:
            if len(running) >= MAX_PULLS:
                names = ", ".join(running)
                raise RequestError(f"expected at most {MAX_PULLS} downloads at once: wait for {names}, or stop one")
            pull = self._running[model] = _Pull(model, config)
            pull.start()
        return self._follow(pull)

    def _alive(self) -> dict[str, _Pull]:
        self._running = {name: pull for name, pull in self._running.items() if not pull.has_ended}
        return self._running

    async def _follow(self, pull: _Pull) -> AsyncGenerator[tuple[str, object], None]:
        """Yields the progress when it changes, the notes, and the result.

        Raises:
            DragomanError: the download failed, or was stopped.
        """
        noted, sent = 0, None
        while True:
            has_ended = pull.has_ended  # before what is sent is read
            for note in pull.notes[noted:]:
                noted += 1
                yield "note", note
            if (progress := pull.progress) != sent:
                sent = progress
                yield "progress", sent
            if has_ended:
                break
            await asyncio.sleep(TICK_S)
        if pull.error is not None:
            raise pull.error
        await self._on_downloaded()
        yield "result", pull.result
