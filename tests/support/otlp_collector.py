"""A collector of traces on the loopback interface: OTLP over HTTP, decoded by OpenTelemetry's own messages."""

import contextlib
import gzip
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue

KINDS = ["unspecified", "internal", "server", "client", "producer", "consumer"]
STATUS = ["unset", "ok", "error"]


@dataclass
class CollectedSpan:
    """A span as it arrived."""

    name: str
    kind: str
    trace_id: str
    span_id: str
    parent_id: str
    state: str
    status: str
    began_ns: int
    ended_ns: int
    attributes: dict[str, Any]
    resource: dict[str, Any]
    schema_url: str


@dataclass
class Collector:
    """What has arrived."""

    url: str
    status: int = 200
    """The status of its responses."""
    spans: list[CollectedSpan] = field(default_factory=list)
    batches: int = 0
    hang: threading.Event = field(default_factory=threading.Event)
    """While it is not set, requests are not answered."""

    def named(self, name: str) -> list[CollectedSpan]:
        """The spans of this name, in the order in which they began."""
        return sorted((span for span in self.spans if span.name == name), key=lambda span: span.began_ns)


def _value(value: AnyValue) -> Any:
    which = value.WhichOneof("value")
    return [_value(each) for each in value.array_value.values] if which == "array_value" else getattr(value, which)


def _collected(body: bytes) -> Iterator[CollectedSpan]:
    for group in ExportTraceServiceRequest.FromString(body).resource_spans:
        resource = {each.key: _value(each.value) for each in group.resource.attributes}
        for scoped in group.scope_spans:
            for span in scoped.spans:
                yield CollectedSpan(
                    span.name,
                    KINDS[span.kind],
                    span.trace_id.hex(),
                    span.span_id.hex(),
                    span.parent_span_id.hex(),
                    span.trace_state,
                    STATUS[span.status.code],
                    span.start_time_unix_nano,
                    span.end_time_unix_nano,
                    {each.key: _value(each.value) for each in span.attributes},
                    resource,
                    scoped.schema_url,
                )


@contextlib.contextmanager
def collector() -> Iterator[Collector]:
    """A collector that runs as long as the block; `Collector.url` is the value of `OTEL_EXPORTER_OTLP_ENDPOINT`."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            made.hang.wait()
            assert self.path == "/v1/traces"
            if made.status == 200:
                made.spans += _collected(gzip.decompress(body) if "content-encoding" in self.headers else body)
            made.batches += 1
            with contextlib.suppress(OSError):  # the exporter has gone
                self.send_response(made.status)
                self.end_headers()

        def log_message(self, *_: object) -> None:
            """Writes nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    made = Collector(f"http://127.0.0.1:{server.server_port}")
    made.hang.set()
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    try:
        yield made
    finally:
        made.hang.set()
        server.shutdown()
        thread.join()
        server.server_close()
