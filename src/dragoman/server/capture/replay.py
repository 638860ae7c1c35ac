"""Replays a captured exchange: the same pipeline, with the captured output in place of the model.

    captured body → parsed request → what would be sent now → captured output → reader, guard, writer → response

The real server answers, and the replay is captured again. So a difference between the two captures comes from today's
code, settings or chunk boundaries, and from nothing else.
"""

import asyncio
from collections.abc import AsyncGenerator, Iterator, Mapping, MutableMapping
from functools import partial
from typing import Any, Final, TypeVar, cast

import msgspec

from dragoman import dialects
from dragoman.config.server import ServerConfig
from dragoman.core.backend import Backend, ExchangeContext, PassthroughResponse
from dragoman.core.client import ANONYMOUS, ClientFacts
from dragoman.core.errors import BackendUnavailableError, ClientError, ConfigError
from dragoman.core.messages import JsonText, PreviousResponseRef, Request, Tool
from dragoman.gateway.compaction import Seal
from dragoman.gateway.gateway import Gateway
from dragoman.gateway.routing.router import ModelRoute, Router
from dragoman.gateway.second_opinion.opinions import opinions_of
from dragoman.gateway.storage.response_store import ResolvedRequest, ResponseStore
from dragoman.gateway.vendor_tools.loop import VendorToolRunner
from dragoman.guard.policy import GuardPolicy
from dragoman.redaction.redact import Redactor
from dragoman.server.base_exchange import Route
from dragoman.server.capture.captured_tools import CapturedSearch, CapturedTool
from dragoman.server.capture.files import TOOL_RUNS, Files, capture_files
from dragoman.server.capture.load import (
    LoadedCapture,
    engine_piece,
    error_from_json,
    event_from_json,
    output_from_json,
    request_from_json,
)
from dragoman.server.capture.recorder import CaptureRecorder
from dragoman.server.capture.replay_backend import (
    ChunkMode,
    FollowsCapturedModes,
    ReadSettings,
    ReceivesFacts,
    Rechunker,
    replay_backend,
)
from dragoman.server.client_watch import Client, ClientDisconnectedError
from dragoman.server.exchange import Exchange
from dragoman.server.observe.access_log import AccessRecord
from dragoman.vendor_tools.executor import RunTool, ToolExecutor
from dragoman.vendor_tools.tool import TOOL_SEARCH, ToolRunResult, VendorTool

_CLIENT_CLOSED: Final = 499
"""The status of an exchange whose client disconnected."""
T = TypeVar("T")


class Replay(CaptureRecorder):
    """Captures the exchange again, and supplies the model's output."""

    def __init__(self, captured: LoadedCapture, cut: ChunkMode = "recorded", seed: int = 0) -> None:
        request, summary = captured.json("request.json"), captured.json("summary.json")
        super().__init__(request.get("method", "POST"), request.get("path", ""), request.get("headers", {}))
        self._captured, self._cut, self._seed = captured, cut, seed
        self._runs_left: list[dict[str, Any]] | None = None
        """Captured runs of tools that were not replayed; None: not read yet."""
        self._summary = summary
        self._context_fields = summary.get("context", {})
        self._client_left = summary.get("log", {}).get("status") == _CLIENT_CLOSED
        self.reads: list[ReadSettings] = []
        """How text was read, each time that a reader was created."""
        self.read_of: dict[tuple[int, int], ReadSettings] = {}
        """The same, by the number of the backend call and of the request to the model."""

    def wrap_context(self, context: ExchangeContext) -> ExchangeContext:
        """Returns the context with the ids and the time of the capture."""
        captured = self._context_fields
        more = iter([*captured.get("ids", ()), *(f"{n:024}" for n in range(1, 10_000))])
        id, created = captured.get("id", context.id), captured.get("created", 0)
        return super().wrap_context(msgspec.structs.replace(context, id=id, created=created, new_id=more.__next__))

    async def wrap_model_output(
        self, target: str, sent: object, pieces: AsyncGenerator[T, None]
    ) -> AsyncGenerator[T, None]:
        """Yields the captured output; no model is called."""
        number, call = len(self.backend_calls), self.backend_calls[-1]
        if not target:
            for line in self._captured.lines(f"{number}/events.jsonl"):
                yield cast(T, event_from_json(line))
            return
        count = len(call.outputs) + 1
        output = self._begin_output(target, sent)
        if self.reads:
            self.read_of[number, count] = self.reads[-1]
        name = f"{number}/model-output-{count}.jsonl"
        if name not in self._captured.files:
            if "error" in (outcome := self._captured.json(f"{number}/backend.json")):  # it was never sent
                raise error_from_json(outcome["error"])
            raise BackendUnavailableError(f"the replay sends more requests than were captured: {name} is missing")
        _, *lines = self._captured.model_output(number, count)
        for each in self._pieces(target, [line for line in lines if "ms" in line]):
            output.pieces.append((self.ms, each))
            yield cast(T, each)
        if lines and "error" in lines[-1]:
            output.error, output.abandoned = error_from_json(lines[-1]["error"]), False
            raise output.error
        if (
            self._client_left
            and number == self._captured.backend_call_count
            and count == self._captured.output_count(number)
        ):
            raise ClientDisconnectedError

    async def run_tool(self, kind: str, arguments: JsonText, run: RunTool) -> ToolRunResult:
        """Returns the captured result; no tool is run."""
        captured = partial(self.captured_result, kind, arguments)
        return await super().run_tool(kind, arguments, run if kind == TOOL_SEARCH else captured)

    async def captured_result(self, kind: str, arguments: JsonText) -> ToolRunResult:
        """Returns the next result of the same call; runs of one response end in any order, and are captured in it."""
        if self._runs_left is None:
            self._runs_left = self._captured.lines(TOOL_RUNS)
        if not (left := self._runs_left):
            number = len(self.tool_runs)
            raise BackendUnavailableError(f"the replay runs more tools than were captured: {number} in {TOOL_RUNS}")
        same = (line for line in left if (line.get("kind"), line.get("arguments")) == (kind, arguments))
        chosen = next(same, left[0])
        left.remove(chosen)
        try:
            return msgspec.convert(chosen["result"], ToolRunResult)
        except (KeyError, msgspec.ValidationError) as e:
            raise ConfigError(f"{self._captured.name} is not a capture: {TOOL_RUNS} has an invalid line: {e}") from None

    def _vendor_tools(self) -> VendorToolRunner:
        """Returns the tools that the gateway ran then, with the functions that the backends were sent."""
        ran = {line.get("kind", "") for line in self._captured.lines(TOOL_RUNS)}
        functions: dict[str, Tool] = {}
        for number in range(self._captured.backend_call_count, 0, -1):  # a bundle contains only some of these files
            if (name := f"{number}/values.json") in self._captured.files:
                sent = request_from_json(self._captured.json(name)).tools
                functions |= {tool.name: tool for tool in sent if tool.kind == "function"}
        run: dict[str, ToolExecutor] = {}
        for tool, own in self._declared_tools():
            if tool.kind == TOOL_SEARCH:
                continue
            if tool.kind in ran or (tool.name in functions and tool.name not in own):
                run[tool.kind] = CapturedTool(functions.get(tool.name, Tool(tool.name)))
        run[TOOL_SEARCH] = CapturedSearch(self.captured_result)
        search_above, rounds = self._summary.get("search_above", 0), max(1, self._captured.backend_call_count)
        return VendorToolRunner(run, max_rounds=rounds, max_tokens=0, search_above=search_above)

    def _declared_tools(self) -> list[tuple[VendorTool, set[str]]]:
        """Returns the vendor's tools of the request, each with the names of the client's own functions."""
        dialect = next((each for each in map(dialects.get, dialects.names()) if each.path == self.path), None)
        if dialect is None or dialect.vendor_tools is None:
            return []
        try:
            request = dialect.read_request(self._captured.files.get("body", b""))
            declared = dialect.vendor_tools.declared(request)
        except ClientError:
            return []
        own = {tool.name for tool in request.tools if tool.kind == "function"}
        return [(tool, own) for tool in declared]

    def _pieces(self, target: str, lines: list[dict[str, Any]]) -> Iterator[object]:
        """Yields the pieces, in other chunks if that is asked for and possible."""
        rechunker = Rechunker(self._cut, self._seed)
        if target.startswith("/"):  # bytes over HTTP may be split anywhere
            body = b"".join(cast(bytes, output_from_json(line)) for line in lines)
            if self._cut == "recorded":
                yield from map(output_from_json, lines)
            else:
                yield from (text.encode("latin-1") for text in rechunker.feed(body.decode("latin-1")))
                yield from (text.encode("latin-1") for text in rechunker.close())
        elif target == "completion":
            for line in lines:
                if "text" in line:
                    yield from (engine_piece({"text": text}) for text in rechunker.feed(line["text"]))
                else:
                    yield from (engine_piece({"text": text}) for text in rechunker.close())
                    yield output_from_json(line)
            yield from (engine_piece({"text": text}) for text in rechunker.close())
        else:
            yield from map(output_from_json, lines)

    def gateway(self) -> Gateway:
        """Returns a gateway with the backends that were called then."""
        policy = msgspec.convert(self._summary.get("guard", {}), GuardPolicy)
        policy = msgspec.structs.replace(policy, second_opinion=self._second_opinion())
        backends: dict[tuple[str, str], Backend] = {}
        order = []
        for number in range(1, self._captured.backend_call_count + 1):
            facts = self._captured.json(f"{number}/backend.json") | {"cost_usd": self._cost_usd(number)}
            key = facts.get("backend", ""), facts.get("model", "")
            if key not in backends:
                backends[key] = self._backend(f"{number}/backend.json", facts, key[1])
                order.append((backends[key], key[1]))
            elif isinstance(known := backends[key], FollowsCapturedModes):
                known.expect(facts)
            if isinstance(backend := backends[key], ReceivesFacts) and f"{number}/values.json" in self._captured.files:
                backend.learn(request_from_json(self._captured.json(f"{number}/values.json")))
        passed_through = [
            n
            for n in range(1, self._captured.backend_call_count + 1)
            if not self._captured.json(f"{n}/backend.json").get("is_read")
        ]
        return _Gateway(
            order, policy, _CapturedStore(self._captured), self._vendor_tools(), is_passthrough=1 in passed_through
        )

    def _backend(self, name: str, facts: dict[str, Any], model: str) -> Backend:
        try:
            return replay_backend(facts, model, self.reads, self._cut, self._seed)
        except KeyError as e:
            raise ConfigError(f"{self._captured.name} is not a capture: {name} lacks {e}") from None
        except (TypeError, msgspec.ValidationError) as e:
            raise ConfigError(f"{self._captured.name} is not a capture: {name} has an invalid value: {e}") from None

    def _second_opinion(self) -> str:
        """Returns the model that was to be re-asked, whether the guard or a route named it; empty: there was none."""
        warnings: list[dict[str, str]] = self._summary.get("warnings", [])
        return next((each["detail"] for each in warnings if each["code"].startswith("second_opinion")), "")

    def _cost_usd(self, number: int) -> float | None:
        """Returns the cost that a backend reported outside of the model's output."""
        costs = (
            line["usage"].get("cost_usd") for line in self._captured.lines(f"{number}/events.jsonl") if "usage" in line
        )
        return next((cost for cost in costs if cost is not None), None)

    async def answered(self) -> Files:
        """Replays the exchange, and returns the files of all stages.

        Raises: ConfigError: the capture is not of a request that can be replayed.
        """
        return await run_replay(self, self.gateway(), self._captured, str(self._context_fields.get("id", "")))

    async def find_reads(self) -> Mapping[tuple[int, int], ReadSettings]:
        """Replays the exchange, and returns how its texts are read; cheaper than the files of all stages.

        Raises: ConfigError: the capture is not of a request that can be replayed.
        """
        await _play(self, self.gateway(), self._captured, str(self._context_fields.get("id", "")))
        return self.read_of


class LiveReplay(CaptureRecorder):
    """Captures the exchange again, with a real backend."""

    def __init__(self, captured: LoadedCapture, gateway: Gateway, model: str) -> None:
        """Args:
        captured: the capture.
        gateway: answers the request.
        model: the name of the model to use; empty: that of the request.
        """
        request = captured.json("request.json")
        super().__init__(request.get("method", "POST"), request.get("path", ""), request.get("headers", {}))
        self._captured, self._gateway, self._model = captured, gateway, model

    async def answered(self) -> Files:
        """Runs the exchange, and returns the files of all stages.

        Raises:
            ConfigError: the capture is not of a request that can be replayed.
            DragomanError: a backend did not start.
        """
        body = self._captured.files.get("body", b"")
        if self._model:
            fields = msgspec.json.decode(body, type=dict[str, msgspec.Raw])
            body = msgspec.json.encode({**fields, "model": self._model})
        try:
            await self._gateway.start()
            return await run_replay(self, self._gateway, LoadedCapture("", {**self._captured.files, "body": body}))
        finally:
            await self._gateway.close()


async def run_replay(capture: CaptureRecorder, gateway: Gateway, captured: LoadedCapture, id: str = "") -> Files:
    """Sends the captured body to the gateway, and returns the files of all stages.

    Args:
        capture: Records the new exchange; has the method, path and headers of the old one.
        gateway: The gateway of the replay.
        captured: The old exchange.
        id: The id of the old exchange, which the new one gets too; "": a random one.

    Raises: ConfigError: the capture is not of a request that can be replayed.
    """
    record = await _play(capture, gateway, captured, id)
    return capture_files(capture, record.facts(), gateway, Redactor(gateway.secret_values()))


async def _play(capture: CaptureRecorder, gateway: Gateway, captured: LoadedCapture, id: str) -> AccessRecord:
    """Sends the captured body to the gateway; see `run_replay`."""
    routes = {(dialect := dialects.get(name)).path: Route(dialect) for name in dialects.names()}
    if capture.path not in routes:
        raise ConfigError(
            f"only model responses are replayed: {', '.join(routes)}; this was {capture.method} {capture.path}"
        )
    record = AccessRecord(capture.method, capture.path)
    if id:
        record.turn_id, record.id = id, f"req_{id}"
    body = [{"type": "http.request", "body": captured.files.get("body", b"")}]

    async def receive() -> MutableMapping[str, Any]:
        if body:
            return body.pop()
        await asyncio.Event().wait()  # the client stays connected
        raise AssertionError

    async def send(message: MutableMapping[str, Any]) -> None:
        if message["type"] == "http.response.start":
            record.status = message["status"]

    config = ServerConfig(max_body_bytes=2**40)
    client = Client(receive, capture.wrap_send(send))
    await Exchange(routes[capture.path], gateway, config, record, client, capture).run(capture.headers)
    record.close()
    return record


class _CapturedStore(ResponseStore):
    """Returns the conversation that the first backend received, if it continued a stored response."""

    def __init__(self, captured: LoadedCapture) -> None:
        super().__init__()
        self._captured = captured

    def resolve(self, request: Request, owner: str = "") -> ResolvedRequest:
        """See `ResponseStore`; returns the complete request as it was then."""
        names = request.previous_response or any(
            isinstance(p, PreviousResponseRef) for m in request.messages for p in m.parts
        )
        if "1/values.json" not in self._captured.files or not names:
            return super().resolve(request, owner)
        resolved = request_from_json(self._captured.json("1/values.json"))
        return ResolvedRequest(msgspec.structs.replace(resolved, model=request.model))


def is_continuation(captured: LoadedCapture) -> bool:
    """Whether the request refers to stored responses, which no capture contains."""
    return b'"is": "PreviousResponseRef"' in captured.files.get("values.json", b"")


class _CapturedRouter(Router):
    """The captured backends, in the same order and with the same model names."""

    def __init__(self, order: list[tuple[Backend, str]]) -> None:
        super().__init__([backend for backend, _ in order], {})
        self._order = order

    def routes(self, request: Request, client: ClientFacts = ANONYMOUS) -> list[ModelRoute]:
        """Returns all of them.

        Raises: BackendUnavailableError: no backend was called then.
        """
        if not self._order:
            raise BackendUnavailableError("no backend was called in the capture")
        return self._routes(request, self._order)

    def permitted_routes(self, name: str, request: Request, client: ClientFacts) -> list[ModelRoute]:
        """Returns those that were called after the first; see `Router.permitted_routes`."""
        return self._routes(request, self._order[1:])

    def _routes(self, request: Request, order: list[tuple[Backend, str]]) -> list[ModelRoute]:
        return [ModelRoute(backend, msgspec.structs.replace(request, model=model)) for backend, model in order]


class _Gateway(Gateway):
    """Routes to the captured backends."""

    def __init__(
        self,
        order: list[tuple[Backend, str]],
        policy: GuardPolicy,
        response_store: ResponseStore,
        vendor_tools: VendorToolRunner,
        *,
        is_passthrough: bool,
    ) -> None:
        super().__init__(
            [backend for backend, _ in order],
            response_store=response_store,
            policy=policy,
            seal=Seal(checks=False),
            vendor_tools=vendor_tools,
        )
        self._router = _CapturedRouter(order)
        self._opinions = opinions_of(policy, None, self._router, None)
        self._is_passthrough = is_passthrough

    def passthrough(self, request: Request, body: bytes, context: ExchangeContext) -> PassthroughResponse | None:
        """Returns the passthrough response if the captured response was passed through."""
        return super().passthrough(request, body, context) if self._is_passthrough else None
