"""The key that all replicas sign with, in the store that they share.

The first replica stores the key of its machine, and all others use that one. If the store loses it, a replica that
still has it stores it again. If there is another key by then, both are accepted by the replicas that know both.
"""

import logging
import threading
import time
from collections.abc import Callable
from typing import Final

from dragoman.core.errors import BackendUnavailableError
from dragoman.state.store import StateKind, StateStore

log = logging.getLogger("dragoman.gateway.storage.shared_key")

CHECK_EVERY_S: Final = 60.0
_TTL_S: Final = 10 * 365 * 86400.0
_NAME: Final = "compaction"

KEYS: Final = StateKind("seal_keys", bytes, bytes, _TTL_S, is_renewed=True, is_durable=True)


class SharedKey:
    """The keys of a seal; all methods can be called in any thread."""

    def __init__(self, store: StateStore, own: bytes, now_s: Callable[[], float] = time.monotonic) -> None:
        """Args:
        store: The store that the replicas share.
        own: The key for a store that has none yet.
        now_s: Monotonic clock, in seconds.
        """
        self._store, self._own, self._now_s = store, own, now_s
        self._keys: tuple[bytes, ...] = ()
        self._checked_s = 0.0
        self._lock = threading.Lock()

    def keys(self) -> tuple[bytes, ...]:
        """Returns the keys; the first one signs.

        Raises:
            BackendUnavailableError: The store has not been read yet, and cannot be read now.
        """
        if not self._keys:
            self.check()
        elif self._now_s() - self._checked_s > CHECK_EVERY_S:
            self._checked_s = self._now_s()
            threading.Thread(target=self._check_again, name="shared-key", daemon=True).start()
        return self._keys

    def check(self) -> None:
        """Reads the key from the store, and stores it if it is missing.

        Raises:
            BackendUnavailableError: The store cannot be used.
        """
        with self._lock:
            stored = self._store.get(KEYS, _NAME)
            if stored is None:
                self._store.put_if_absent(KEYS, _NAME, self._keys[0] if self._keys else self._own, len(self._own))
                stored = self._store.get(KEYS, _NAME) or self._own
            if self._keys and stored != self._keys[0]:
                log.warning(
                    "the shared state has another key for compacted conversations than before: replicas that "
                    "start now cannot open earlier ones; set response_store.seal_key"
                )
            self._keys = (stored, *(key for key in self._keys if key != stored))
            self._checked_s = self._now_s()

    def _check_again(self) -> None:
        try:
            self.check()
        except BackendUnavailableError as error:
            log.debug("the shared key was not checked: %s", error.message)
