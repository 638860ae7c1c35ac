"""Runs the scenarios in rounds, each with all contenders in a new random order, so that noise affects all alike."""

import http.client
import random
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple, ParamSpec, TypeVar

from bench.proxies.contenders import Contender, serving
from bench.proxies.load import LoadProgram, Outcome, load_program
from bench.proxies.processes import ServerProcess, cpu_ns, memory_bytes, raise_descriptor_limit
from bench.proxies.scenarios import (
    HEADERS,
    PATHS,
    SCENARIOS,
    Scenario,
    quick,
    request_body,
    request_bytes,
)


class ContenderError(Exception):
    """A contender failed or sent a wrong response."""


class Cell(NamedTuple):
    """A place in the table."""

    scenario: str
    contender: str


class MemoryUse(NamedTuple):
    """Proportional set sizes in bytes."""

    idle: float
    per_stream: float


class Results:
    """CPU nanoseconds of a request or delta, and memory."""

    def __init__(self) -> None:
        self.cpu: dict[Cell, dict[int, float]] = defaultdict(dict)
        """By round."""
        self.memory: dict[str, MemoryUse] = {}
        """By contender."""


class Bench:
    """The running load program and contenders."""

    def __init__(self, load: LoadProgram, servers: dict[str, ServerProcess], contenders: Sequence[Contender]) -> None:
        self._load = load
        self._servers = servers
        self.contenders = contenders

    def check(self, contender: Contender, scenario: Scenario) -> None:
        """Sends one request and reads its response.

        Raises:
            ContenderError: the response lacks text, or the tool call that the contender has to parse.
        """
        model, script = contender.model_for(scenario), scenario.script
        body = request_body(contender.api, model, script, stream=scenario.deltas > 0)
        connection = http.client.HTTPConnection("127.0.0.1", self._servers[contender.name].port, timeout=60)
        try:
            connection.request("POST", PATHS[contender.api], body, HEADERS)
            response = connection.getresponse()
            text = response.read()
        except (OSError, http.client.HTTPException) as error:
            raise ContenderError(f"{contender.name}, {scenario.name}: {error!r}") from error
        finally:
            connection.close()
        tool_call = b'"tool_use"' if contender.api == "messages" else b'"tool_calls"'
        is_parsed = not (scenario.is_tool_call and contender.tool_model) or tool_call in text
        if response.status != 200 or text.count(b"@") != (scenario.deltas or 80) or not is_parsed:
            message = text[-500:].decode(errors="replace")
            raise ContenderError(
                f"{contender.name}, {scenario.name}: wrong response, status {response.status}: {message}"
            )

    def cpu(self, contender: Contender, scenario: Scenario) -> float:
        """Returns CPU nanoseconds of a request that is not streamed, else of a delta (with its share of the request).

        Raises:
            ContenderError: a request failed or its response lacks text.
        """
        server = self._servers[contender.name]
        before = cpu_ns(server.pid)
        outcome = self._load.run(
            server.port,
            self._request(contender, scenario),
            conns=scenario.conns,
            requests=scenario.requests,
            millis=scenario.millis,
            marks=scenario.deltas,
            spread=scenario.spread,
        )
        spent = cpu_ns(server.pid) - before
        _check_outcome(f"{contender.name}, {scenario.name}", outcome)
        return spent / (outcome.done * max(1, scenario.deltas))

    def memory(self, contender: Contender, streams: int) -> MemoryUse:
        """Returns the memory before and with so many open streams, each of which has received its first delta."""
        server = self._servers[contender.name]
        idle = memory_bytes(server.pid)
        body = request_body(contender.api, contender.model, "bench-n1-h1", stream=True)
        request = request_bytes(PATHS[contender.api], body)
        with self._load.open_streams(server.port, request, streams, spread=streams) as outcome:
            if outcome.done < streams:
                raise ContenderError(f"{contender.name}: {streams - outcome.done} of {streams} streams got no text")
            time.sleep(0.2)  # a last write of the server
            return MemoryUse(idle, max(0, memory_bytes(server.pid) - idle) / streams)

    def _request(self, contender: Contender, scenario: Scenario) -> bytes:
        model = contender.model_for(scenario)
        body = request_body(contender.api, model, scenario.script, stream=scenario.deltas > 0)
        return request_bytes(PATHS[contender.api], body)


def _check_outcome(what: str, outcome: Outcome) -> None:
    if outcome.failed or outcome.short or not outcome.done:
        raise ContenderError(
            f"{what}: {outcome.failed} requests failed (status {outcome.status}), {outcome.short} lack text"
        )


def measure(contenders: Sequence[Contender], rounds: int, *, is_quick: bool = False) -> Results:
    """Starts all contenders and measures each scenario. One that fails is named and omitted."""
    raise_descriptor_limit()
    results = Results()
    scenarios = [quick(scenario) for scenario in SCENARIOS] if is_quick else list(SCENARIOS)
    with load_program() as load, ExitStack() as stack:
        bench = _started(load, contenders, stack)
        print("checking the responses", file=sys.stderr, flush=True)
        working = [
            one
            for one in bench.contenders
            if all(_attempt(bench.check, one, quick(s)._replace(rate=0)) for s in scenarios)
        ]
        for contender in working:
            print(f"memory of {contender.name}", file=sys.stderr, flush=True)
            _warm_up(bench, contender)
            streams = 3 if is_quick else contender.open_streams
            for memory in _attempt(bench.memory, contender, streams):
                results.memory[contender.name] = memory
        for number in range(rounds):
            print(f"round {number + 1} of {rounds}", file=sys.stderr, flush=True)
            for scenario in scenarios:
                for contender in _order(working, number):
                    for spent in _attempt(bench.cpu, contender, scenario):
                        results.cpu[Cell(scenario.name, contender.name)][number] = spent
    return results


def _started(load: LoadProgram, contenders: Sequence[Contender], stack: ExitStack) -> Bench:
    servers = {}
    for contender in contenders:
        print(f"starting {contender.name}", file=sys.stderr, flush=True)
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(ignore_cleanup_errors=True)))
        try:
            servers[contender.name] = stack.enter_context(serving(contender, folder, load.port))
        except RuntimeError as error:
            print(f"omitted: {error}", file=sys.stderr, flush=True)
    return Bench(load, servers, [contender for contender in contenders if contender.name in servers])


def _warm_up(bench: Bench, contender: Contender) -> None:
    for scenario in SCENARIOS[:1]:
        _attempt(bench.cpu, contender, quick(scenario)._replace(requests=20))


_P = ParamSpec("_P")
_T = TypeVar("_T")


def _attempt(call: Callable[_P, _T], *args: _P.args, **kwargs: _P.kwargs) -> list[_T]:
    """Returns the result in a list, which is empty if the call failed; the error is printed."""
    try:
        return [call(*args, **kwargs)]
    except ContenderError as error:
        print(f"omitted: {error}", file=sys.stderr, flush=True)
        return []


def _order(contenders: Sequence[Contender], number: int) -> Iterator[Contender]:
    """Yields the contenders of a round in random order; the slow ones in every third round."""
    chosen = [contender for contender in contenders if not contender.is_slow or number % 3 == 0]
    random.shuffle(chosen)
    yield from chosen
