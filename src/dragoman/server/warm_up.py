"""Work that is done once before the first request, so that no request has to wait for it in the event loop."""

import gc
import importlib

from dragoman import formats
from dragoman.gateway import Gateway


def warm_up(gateway: Gateway) -> None:
    """Imports the modules that requests need, and exempts all objects that exist by now from garbage collection.

    Without that the first request imports all formats, and each full collection visits every object of every module:
    the event loop was held for up to 130 ms of CPU time. The exemption is made once in a process.

    Raises: ConfigError: calls are to be checked, and the extra `guard` is missing.
    """
    for name in formats.names():
        formats.get(name)
    if gateway.policy.enabled:
        importlib.import_module("dragoman.guarded")
    if not gc.get_freeze_count():
        gc.collect()
        gc.freeze()
