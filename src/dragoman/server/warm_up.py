"""Work that is done once before the first request, so that no request has to wait for it in the event loop."""

import gc
import importlib
from typing import Final

from dragoman import formats
from dragoman.gateway.gateway import Gateway

GC_THRESHOLDS: Final = (700, 3, 5000)
"""For `gc.set_threshold`. A pass visits each object that requests in progress hold, about 300 of a stream, and finds
next to nothing. By Python's own (700, 10, 10) passes over the two younger generations held the event loop for up to
48 ms of CPU time at 200 streams, and full ones, every 20 s, for up to 78 ms: so smaller passes, and few full ones."""


def warm_up(gateway: Gateway) -> None:
    """Imports the modules that requests need, and prepares garbage collection.

    Without that the first request imports all formats, and each full collection visits every object of every module:
    the event loop was held for up to 130 ms of CPU time. All objects that exist by now are exempted from garbage
    collection, once in a process, and the thresholds become `GC_THRESHOLDS`.

    Raises: ConfigError: calls are to be checked, and the extra `guard` is missing.
    """
    formats.built_in()
    if gateway.policy.enabled:
        importlib.import_module("dragoman.guard.guard")
    if not gc.get_freeze_count():
        gc.collect()
        gc.freeze()
        gc.set_threshold(*GC_THRESHOLDS)
