"""Sends completions to the slot of the engine that has most of their prompt, or a saved prefix of it."""

import asyncio
import logging
import time
from collections import deque
from collections.abc import AsyncGenerator, Coroutine, Mapping
from contextlib import aclosing
from typing import Any, Final, Literal, NamedTuple, Protocol
from weakref import WeakValueDictionary

from dragoman.backends.embedded.engine_output import Done, Output, Progress
from dragoman.backends.embedded.prefixes.boundary import MIN_CHARS
from dragoman.backends.embedded.prefixes.files import PrefixFiles, SavedPrefix
from dragoman.backends.embedded.prefixes.model_key import model_key
from dragoman.backends.embedded.prefixes.slots import SlotTable
from dragoman.backends.embedded.start_worker import EngineSettings
from dragoman.core.errors import BackendUnavailableError, DragomanError

log = logging.getLogger("dragoman.embedded")

MIN_TOKENS: Final = 512
"""A prefix with fewer new tokens is not saved."""
_SIMILAR_SHARE: Final = 0.15
"""llama.cpp empties a slot that has less than a tenth of a prompt."""
_SAVES_PER_HOUR: Final = 16
"""A system text with the time in it is another one in each conversation: each would fill the disk."""
_PARKING: Final[dict[str, Any]] = {"prompt": ".", "n_predict": 0, "cache_prompt": True}
"""A prompt that makes the engine move the content of a slot to its memory."""
_RESTORED_AT_START: Final = 2

SlotAction = Literal["save", "restore"]


class EngineRun(Protocol):
    """The engine during one request."""

    def complete(self, body: Mapping[str, Any]) -> AsyncGenerator[Output, None]:
        """Yields the output of one completion."""

    async def move_slot(self, action: SlotAction, slot: int, filename: str) -> int:
        """Saves a slot or restores it, and returns the number of its tokens."""

    async def count(self, text: str) -> int:
        """Returns the number of tokens of a text."""


class _Request(NamedTuple):
    """A completion, and the slot in which it runs."""

    run: EngineRun
    slots: SlotTable
    slot: int
    prompt: str
    prefix: str


class WarmPrefixes:
    """The saved prefixes of one engine, and what its slots contain."""

    def __init__(self, files: PrefixFiles, slots: int, context_window: int, memory_bytes: int) -> None:
        """
        Args:
            files: the saved prefixes of the model.
            slots: the number of the engine's slots.
            context_window: tokens that a slot can hold.
            memory_bytes: memory of the engine for what is evicted from its slots.
        """
        self._files, self._context_window = files, context_window
        self._slot_count, self._memory_bytes = slots, memory_bytes
        self._slots = SlotTable(slots, memory_bytes)
        self._saves_s: deque[float] = deque(maxlen=_SAVES_PER_HOUR)
        self._reading: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        """By prefix: two requests with the same new one do not both read it."""
        self._background: set[asyncio.Task[None]] = set()
        self._total = (0, 0)
        self._unused: list[SavedPrefix] = []
        """Those that were restored at start, until a request uses them."""
        self.saved = self.restored = self.restored_tokens = self.failed = 0

    def reset(self) -> None:
        """Forgets what the slots contain: the engine has been started."""
        self._slots = SlotTable(self._slot_count, self._memory_bytes)

    def state(self) -> Mapping[str, int]:
        """Returns the counts for /health."""
        count, size_bytes = self._total
        return {
            "files": count,
            "mb": round(size_bytes / 1e6),
            "saved": self.saved,
            "restored": self.restored,
            "restored_tokens": self.restored_tokens,
            "failed": self.failed,
        }

    async def close(self) -> None:
        """Waits for files that are being written."""
        while self._background:
            await asyncio.wait(self._background)

    async def restore_recent(self, run: EngineRun) -> None:
        """Restores the most recently used prefixes into empty slots, before the first request."""
        recent = await asyncio.to_thread(self._files.recent)
        slots = self._slots
        for saved in recent[: min(self._slot_count, _RESTORED_AT_START)]:
            slot = slots.take("", fresh=True)
            if slot is None:
                break
            try:
                if await self._restore(run, slots, slot, saved):
                    self._unused.append(saved)
            finally:
                slots.release(slot)
        self._total = await asyncio.to_thread(self._files.total)

    async def complete(
        self, run: EngineRun, body: Mapping[str, Any], prefix_chars: int
    ) -> AsyncGenerator[Output, None]:
        """Yields the output of one completion, after its prefix has been restored, or read and saved.

        Args:
            run: the engine.
            body: the request to it.
            prefix_chars: length of the prompt's constant prefix; 0: it has none.

        Raises:
            DragomanError: the completion could not begin, was rejected, or broke off.
        """
        prompt: str = body["prompt"]
        slots = self._slots  # another one after a restart of the engine
        known = slots.known(prompt)
        has_prefix = known.is_continued and known.chars >= prefix_chars - MIN_CHARS
        is_new = prefix_chars >= MIN_CHARS and not has_prefix
        self._mark_used(prompt)
        slot = slots.take(prompt, fresh=is_new)
        if slot is None:
            slots, slot, is_new = SlotTable(1, 0), -1, False  # the engine chooses
        request = _Request(run, slots, slot, prompt, prompt[:prefix_chars])
        try:
            async with aclosing(self._complete(request, body, is_new)) as outputs:
                async for output in outputs:
                    yield output
        finally:
            slots.release(slot)

    async def _complete(
        self, request: "_Request", body: Mapping[str, Any], is_new: bool
    ) -> AsyncGenerator[Output, None]:
        cached: int | None = None
        if is_new:
            async with aclosing(self._prepare(request)) as outputs:
                async for output in outputs:
                    if isinstance(output, Done):
                        cached = output.cached_tokens
                    else:
                        yield output
        request.slots.put(request.slot, request.prompt)
        async with aclosing(request.run.complete({**body, "id_slot": request.slot})) as outputs:
            async for output in outputs:
                if isinstance(output, Done) and cached is not None:
                    # The prefix has been read for this request: it was not cached.
                    output = output._replace(cached_tokens=min(cached, output.cached_tokens))
                yield output

    async def _prepare(self, request: "_Request") -> AsyncGenerator[Output, None]:
        """Gets the prefix into the slot; yields its progress, and one `Done` if it was read."""
        lock = self._reading.setdefault(request.prefix, asyncio.Lock())
        async with lock:
            await self.close()  # a prefix that is just being written can be restored
            known, is_restored = await self._restore_best(request)
            if len(request.prefix) - known < MIN_CHARS or not self._may_save():
                return
            if not is_restored:
                await self._park(request)
            async with aclosing(self._read(request)) as outputs:
                async for output in outputs:
                    yield output

    async def _restore_best(self, request: "_Request") -> tuple[int, bool]:
        """Restores the saved prefix with most of the prompt.

        Returns: how many characters the engine has then, and whether one was restored.
        """
        known = request.slots.known(request.prompt).chars
        found = await asyncio.to_thread(self._files.best, request.prompt)
        least = max(MIN_CHARS, known - MIN_CHARS, _SIMILAR_SHARE * len(request.prompt))
        if found is None or found[1] < least:
            return known, False
        saved, common = found
        await self._park(request)
        if not await self._restore(request.run, request.slots, request.slot, saved):
            return known, False
        await asyncio.to_thread(self._files.mark_used, saved)
        return common, True

    async def _restore(self, run: EngineRun, slots: SlotTable, slot: int, saved: SavedPrefix) -> bool:
        began_s = time.monotonic()
        if not await asyncio.to_thread(self._files.is_intact, saved):
            await self._drop(saved, "it is damaged")
            return False
        slots.drop(slot)
        try:
            tokens = await run.move_slot("restore", slot, self._files.path(saved).name)
        except BackendUnavailableError:
            return False  # the engine is gone, not the file
        except DragomanError as error:
            await self._drop(saved, str(error))
            return False
        slots.put(slot, saved.text)
        slots.bytes_per_char = saved.size_bytes / len(saved.text)
        self.restored += 1
        self.restored_tokens += tokens
        log.info("restored a prompt prefix of %d tokens in %.2f s", tokens, time.monotonic() - began_s)
        return True

    def _mark_used(self, prompt: str) -> None:
        """Records the first use of what was restored at start."""
        for saved in [saved for saved in self._unused if prompt.startswith(saved.text)]:
            self._unused.remove(saved)
            self._in_background(asyncio.to_thread(self._files.mark_used, saved))

    async def _drop(self, saved: SavedPrefix, why: str) -> None:
        self.failed += 1
        log.warning("a saved prompt prefix was removed: %s", why)
        await asyncio.to_thread(self._files.remove, saved)

    async def _park(self, request: "_Request") -> None:
        """Makes the engine keep the conversation that is in the slot in its memory."""
        run, slots, slot = request.run, request.slots, request.slot
        if slots.text(slot):
            slots.put(slot, _PARKING["prompt"])
            async with aclosing(run.complete({**_PARKING, "id_slot": slot})) as outputs:
                async for _ in outputs:
                    pass

    def _may_save(self) -> bool:
        now_s = time.monotonic()
        return len(self._saves_s) < _SAVES_PER_HOUR or now_s - self._saves_s[0] > 3600

    async def _read(self, request: "_Request") -> AsyncGenerator[Output, None]:
        """Reads the prefix alone, and saves it; yields the progress and one `Done`."""
        run, slots, slot, prompt, prefix = request
        tokens, total = await run.count(prefix), await run.count(prompt)
        known = slots.known(prompt)
        if tokens - tokens * known.chars // len(prefix) < MIN_TOKENS or total >= self._context_window:
            return
        # Unknown until the end: if the client leaves, the next request reads on in this slot.
        slots.drop(slot)
        body = {"prompt": prefix, "n_predict": 0, "cache_prompt": True, "id_slot": slot}
        async with aclosing(run.complete(body)) as outputs:
            async for output in outputs:
                if isinstance(output, Progress):
                    yield Progress(total, output.done)
                elif isinstance(output, Done):
                    yield output
        slots.put(slot, prefix)
        self._saves_s.append(time.monotonic())
        await self._save(run, slot, prefix, tokens)

    async def _save(self, run: EngineRun, slot: int, prefix: str, tokens: int) -> None:
        """Saves a slot that contains only the prefix; a failure is only logged."""
        name = ""
        try:
            name = await asyncio.to_thread(self._files.new_name)
            count = await run.move_slot("save", slot, name)
        except (OSError, DragomanError) as error:
            self._failed(error)
            await asyncio.to_thread(self._files.discard, name or ".part")
            return
        if count != tokens:  # not what was read: never keep anything else
            log.warning("a prompt prefix was not saved: expected %d tokens in its slot, got %d", tokens, count)
            await asyncio.to_thread(self._files.discard, name)
            return
        self._in_background(self._add(name, prefix, count))

    async def _add(self, name: str, prefix: str, tokens: int) -> None:
        try:
            saved = await asyncio.to_thread(self._files.add, name, prefix, tokens)
            self._total = await asyncio.to_thread(self._files.total)
        except (OSError, ValueError) as error:  # also text that is not Unicode
            self._failed(error)
            await asyncio.to_thread(self._files.discard, name)
            return
        if saved is None:
            log.info("a prompt prefix of %d tokens is larger than embedded.prefix_cache_mb", tokens)
            return
        self.saved += 1
        self._slots.bytes_per_char = saved.size_bytes / len(prefix)
        log.info("saved a prompt prefix of %d tokens: %.0f MB", tokens, saved.size_bytes / 1e6)

    def _failed(self, error: Exception) -> None:
        self.failed += 1
        log.warning("a prompt prefix was not saved: %s", error)

    def _in_background(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._background.add(task)
        task.add_done_callback(self._background.discard)


def open_prefixes(settings: EngineSettings) -> WarmPrefixes | None:
    """Returns the saved prefixes for an engine; None if there can be none. Takes time: call it in a thread."""
    if settings.prefix_dir is None:
        return None
    try:
        key = model_key(settings)
        files = PrefixFiles(settings.prefix_dir, key, settings.path.name, settings.prefix_cache_mb * 1_000_000)
    except OSError as error:
        log.warning("prompt prefixes are neither saved nor restored: %s", error)
        return None
    memory_bytes = settings.cache_mb << 20
    return WarmPrefixes(files, settings.max_concurrency, settings.context_window, memory_bytes)
