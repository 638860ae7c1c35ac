"""What an operation of each state store costs, in µs of real time and of this process' CPU time.

    python -m bench.state_stores                 private servers on loopback, without fsync of PostgreSQL
    python -m bench.state_stores --count 200     tiny: to see that it runs

Values have 4,096 bytes, as a short stored response. Redis and PostgreSQL are left out if they are not installed.
"""

import argparse
import itertools
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

from dragoman.state.memory_store import MemoryStateStore
from dragoman.state.sqlite_store import SqliteStateStore
from dragoman.state.store import StateKind, StateStore
from support import postgresql, redis_server

BYTES: Final = StateKind("bench", bytes, bytes, ttl_s=3600, max_entries=1000)
RENEWED: Final = StateKind("bench_renewed", bytes, bytes, ttl_s=3600, is_renewed=True, max_entries=1000)
VALUE: Final = bytes(range(256)) * 16
KEYS: Final = [f"key {number}" for number in range(64)]


def main() -> None:
    """Prints a table."""
    parser = argparse.ArgumentParser(description="Measure the operations of each state store.")
    parser.add_argument("--count", type=int, default=5000, help="calls of each operation (default: 5000)")
    count = parser.parse_args().count
    with ExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory()))
        for name, store in _stores(folder, stack):
            for operation, run in _operations(store).items():
                wall_us, cpu_us = _measure(run, count)
                print(f"{name:<12}{operation:<24}{wall_us:9.1f} µs{cpu_us:9.1f} µs of CPU", flush=True)


def _stores(folder: Path, stack: ExitStack) -> Iterator[tuple[str, StateStore]]:
    yield "memory", MemoryStateStore()
    yield "sqlite", stack.enter_context(closing(SqliteStateStore(folder / "state.sqlite")))
    if redis_server.PROGRAM is not None:
        from dragoman.state.redis_store import RedisStateStore

        url = stack.enter_context(redis_server.running()).url
        yield "redis", stack.enter_context(closing(RedisStateStore(url)))
    if postgresql.programs() is not None:
        from dragoman.state.postgresql_store import PostgresqlStateStore

        url = stack.enter_context(postgresql.running()).new_database()
        yield "postgresql", stack.enter_context(closing(PostgresqlStateStore(url)))


def _operations(store: StateStore) -> dict[str, Callable[[], object]]:
    keys, claims = itertools.cycle(KEYS), itertools.count()
    for key in KEYS:
        store.put(BYTES, key, VALUE, len(VALUE))
        store.put(RENEWED, key, VALUE, len(VALUE))
    position = store.read_log("bench").position
    return {
        "get": lambda: store.get(BYTES, next(keys)),
        "get, renewed": lambda: store.get(RENEWED, next(keys)),
        "get_many, 16 keys": lambda: store.get_many(BYTES, KEYS[:16]),
        "put": lambda: store.put(BYTES, next(keys), VALUE, len(VALUE)),
        "put_if_absent, new": lambda: store.put_if_absent(BYTES, f"claim {next(claims)}", b"1", 1),
        "put_if_absent, stored": lambda: store.put_if_absent(BYTES, "claim 0", b"1", 1),
        "read_log, nothing new": lambda: store.read_log("bench", position),
        "append": lambda: store.append("bench", b"an entry of a log"),
    }


def _measure(run: Callable[[], object], count: int) -> tuple[float, float]:
    """Returns the mean real time and CPU time of a call, in µs."""
    run()
    wall_s, cpu_s = time.perf_counter(), time.process_time()
    for _ in range(count):
        run()
    return (time.perf_counter() - wall_s) / count * 1e6, (time.process_time() - cpu_s) / count * 1e6


if __name__ == "__main__":
    main()
