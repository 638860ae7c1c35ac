"""The process that renders untrusted chat templates: only ending it stops one that loops or fills the memory.

    → length, pickle of (source, variables, seconds)      variables None: the source is only compiled
    ← length, JSON of {"text": …} or {"error": …, "config": whether it is invalid Jinja}

Started as `python -m`; it ends when its input ends.
"""

import json
import os
import pickle
import signal
import struct
import sys
from functools import lru_cache
from types import FrameType
from typing import Any, BinaryIO, Final

from dragoman.core.errors import ConfigError
from dragoman.prompting import jinja_sandbox

MAX_MEMORY_BYTES: Final = 768 * 1024 * 1024
LENGTH: Final = struct.Struct("<Q")

_compiled = lru_cache(maxsize=32)(jinja_sandbox.compile_template)


def main() -> None:
    """Renders templates until the input ends."""
    out = os.fdopen(os.dup(1), "wb", buffering=0)
    os.dup2(2, 1)
    _limit_resources()
    while (job := _read(sys.stdin.buffer)) is not None:
        result = json.dumps(_render(*pickle.loads(job))).encode()
        out.write(LENGTH.pack(len(result)) + result)


def _read(pipe: BinaryIO) -> bytes | None:
    head = pipe.read(LENGTH.size)
    return pipe.read(LENGTH.unpack(head)[0]) if len(head) == LENGTH.size else None


def _render(source: str, variables: dict[str, Any] | None, cpu_s: float) -> dict[str, Any]:
    _set_timer(cpu_s)
    try:
        template = _compiled(source)
        return {"text": "" if variables is None else template.render(**variables)}
    except ConfigError as error:
        return {"error": error.message, "config": True}
    except MemoryError:
        return {"error": "it takes too much memory", "stop": True}
    except TimeoutError:
        return {"error": f"it takes longer than {cpu_s:.1f} s", "stop": True}
    except jinja_sandbox.RENDER_ERRORS as error:
        return {"error": str(error) or type(error).__name__}
    finally:
        _set_timer(0)


def _on_timer(number: int, frame: FrameType | None) -> None:
    raise TimeoutError


def _set_timer(seconds: float) -> None:
    if sys.platform != "win32":  # Windows has no such timers; there the waiting process terminates this one
        signal.setitimer(signal.ITIMER_VIRTUAL, seconds)


def _limit_resources() -> None:
    if sys.platform == "win32":
        return
    import resource

    signal.signal(signal.SIGVTALRM, _on_timer)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_AS, (MAX_MEMORY_BYTES, MAX_MEMORY_BYTES))


if __name__ == "__main__":
    main()
