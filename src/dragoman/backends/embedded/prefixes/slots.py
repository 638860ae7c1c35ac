"""What each of the engine's slots contains, and which one a prompt is sent to."""

from collections import deque
from typing import Final, NamedTuple

from dragoman.backends.embedded.prefixes.boundary import common_chars

_CONTINUED_SHARE: Final = 0.9
"""A prompt that begins with so much of an earlier one continues its conversation."""
_KEPT_SHARE: Final = 0.5
"""A slot is used for a prompt that keeps so much of its text. llama.cpp itself asks how much of the prompt is in the
slot: a short prompt that begins with the same few words as a long conversation would evict it.
"""
_MUCH_LONGER: Final = 4
"""A slot with so many times as much text as another one is not overwritten instead of that."""
_REMEMBERED: Final = 16
"""Evicted prompts that the engine may still have in memory."""


class Known(NamedTuple):
    """What the engine has of a prompt."""

    chars: int
    """Length of the longest beginning that it has read."""
    is_continued: bool
    """Whether the prompt continues the earlier one; otherwise using that one would cut its end off."""


class SlotTable:
    """The text in each slot.

    The engine keeps what is evicted from a slot in memory, and loads it by itself into the slot to which a prompt with
    the same beginning is sent.
    """

    def __init__(self, count: int, memory_bytes: int) -> None:
        """
        Args:
            count: number of slots.
            memory_bytes: memory of the engine for what was evicted.
        """
        self.bytes_per_char = 0.0
        """Size of the engine's state; 0: not known."""
        self._memory_bytes = memory_bytes
        self._texts = [""] * count
        self._busy: set[int] = set()
        self._order = list(range(count))
        """The least recently used slot first."""
        self._earlier: deque[str] = deque(maxlen=_REMEMBERED)

    def known(self, prompt: str) -> Known:
        """Returns what the engine has of a prompt, in slots or in memory."""
        best, continued = 0, 0
        for text in (*self._texts, *self._in_memory()):
            common = common_chars(text, prompt)
            best = max(best, common)
            if text and common >= _CONTINUED_SHARE * len(text):
                continued = max(continued, common)
        # The conversation that it continues must have about as much of it as another one.
        return Known(best, continued > 0 and continued >= _CONTINUED_SHARE * best)

    def _in_memory(self) -> list[str]:
        """Returns what the engine should still have in memory: the newest texts. It keeps copies of idle slots too."""
        left = self._memory_bytes - self.bytes_per_char * sum(map(len, self._texts))
        texts: list[str] = []
        for text in reversed(self._earlier):
            left -= self.bytes_per_char * len(text)
            if left < 0:
                break
            texts.append(text)
        return texts

    def take(self, prompt: str, *, fresh: bool) -> int | None:
        """Returns a slot, which is busy until `release`; None if all are.

        Args:
            prompt: what will be sent to it.
            fresh: whether the slot will be overwritten; otherwise that with most of the prompt is preferred.
        """
        idle = [slot for slot in self._order if slot not in self._busy]
        if not idle:
            return None
        # A title request must not evict an agent's long conversation, even if that one is older.
        limit = _MUCH_LONGER * min(len(self._texts[slot]) for slot in idle)
        slot = next(slot for slot in idle if len(self._texts[slot]) <= limit)
        if not fresh:
            common = {slot: common_chars(self._texts[slot], prompt) for slot in idle}
            best = max(idle, key=lambda slot: common[slot])
            if 0 < _KEPT_SHARE * len(self._texts[best]) <= common[best]:
                slot = best
        self._busy.add(slot)
        self._order.remove(slot)
        self._order.append(slot)
        return slot

    def release(self, slot: int) -> None:
        """Makes a slot available."""
        self._busy.discard(slot)

    def text(self, slot: int) -> str:
        """Returns the text in a slot."""
        return self._texts[slot]

    def put(self, slot: int, text: str) -> None:
        """Records that the engine has read this text in the slot."""
        earlier = self._texts[slot]
        if earlier and not text.startswith(earlier):
            self._earlier.append(earlier)
        self._texts[slot] = text

    def drop(self, slot: int) -> None:
        """Records that the slot is empty."""
        self._texts[slot] = ""
