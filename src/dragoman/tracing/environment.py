"""Traces as the standard `OTEL_*` variables ask for them; imports nothing of OpenTelemetry if they do not.

    OTEL_EXPORTER_OTLP_ENDPOINT, OTEL_EXPORTER_OTLP_TRACES_ENDPOINT, OTEL_TRACES_EXPORTER      ask for an exporter
    OTEL_SDK_DISABLED=true, OTEL_TRACES_EXPORTER=none                                          turn it off

The SDK itself reads all others: name and attributes of the service, sampler, limits, batches, the exporter's own.

Source: https://opentelemetry.io/docs/specs/otel/configuration/sdk-environment-variables/ (2026-11).
"""

import logging
import threading
from collections.abc import Callable, Mapping
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Any, Final

from dragoman import __version__, extras
from dragoman.core.errors import ConfigError, quote

if TYPE_CHECKING:
    from dragoman.tracing.exchange import Tracing

log = logging.getLogger("dragoman.tracing")

_ENDPOINTS: Final = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
_EXPORTERS: Final = "OTEL_TRACES_EXPORTER"
_PROTOCOLS: Final = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
_OTLP: Final = {"http/protobuf": "otlp_proto_http", "grpc": "otlp_proto_grpc"}
"""Entry points of the OTLP exporters by protocol."""
_GRPC_PACKAGE: Final = "opentelemetry-exporter-otlp-proto-grpc"
CLOSE_S: Final = 3.0
"""Time to export the last spans at the end."""


def requesting_variable(environ: Mapping[str, str]) -> str:
    """Returns the variable that asks for traces, or "" if none does."""
    if environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        return ""
    if _EXPORTERS in environ and environ[_EXPORTERS].strip():
        return _EXPORTERS if _exporter_names(environ) else ""
    return next((name for name in _ENDPOINTS if environ.get(name, "").strip()), "")


def missing_message(environ: Mapping[str, str]) -> str:
    """Returns a text with the command that installs what the variables ask for, or "" if nothing is missing."""
    variable = requesting_variable(environ)
    if not variable or not extras.missing_extras("otel"):
        return ""
    return f"{variable} is set, but traces are not exported: {extras.install_command('otel')}"


def tracing_from(environ: Mapping[str, str]) -> "Tracing | None":
    """Returns what the variables ask for; None: nothing, or it is not installed.

    Raises:
        ConfigError: an exporter is unknown or not installed, or its settings are invalid.
    """
    if not requesting_variable(environ) or extras.missing_extras("otel"):
        return None
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    from dragoman.tracing.conventions import SCHEMA_URL
    from dragoman.tracing.exchange import Tracing

    named = "service.name=" in environ.get("OTEL_RESOURCE_ATTRIBUTES", "") or environ.get("OTEL_SERVICE_NAME")
    resource = Resource.create(
        {"service.version": __version__} | ({} if named else {"service.name": "dragoman"}), SCHEMA_URL
    )
    provider = TracerProvider(resource=resource, shutdown_on_exit=False)
    for name in _exporter_names(environ):
        provider.add_span_processor(BatchSpanProcessor(_exporter(name, environ)))
    tracer = provider.get_tracer("dragoman", __version__, SCHEMA_URL)
    return Tracing(tracer, lambda: close_within(provider.shutdown, CLOSE_S))


def close_within(close: Callable[[], None], limit_s: float) -> None:
    """Exports the last spans; gives up after a time, so that a collector that does not respond delays no exit.

    Args:
        close: Exports them.
        limit_s: The time, in seconds.
    """
    thread = threading.Thread(target=close, name="dragoman-last-spans", daemon=True)
    thread.start()
    thread.join(limit_s)
    if thread.is_alive():
        log.warning("the last spans could not be exported within %g s", limit_s)


def _exporter_names(environ: Mapping[str, str]) -> list[str]:
    listed = environ.get(_EXPORTERS, "").strip() or "otlp"
    names = [name.strip() for name in listed.split(",")]
    return [name for name in names if name not in ("", "none")]


def _exporter(name: str, environ: Mapping[str, str]) -> Any:
    """Returns a new exporter.

    Raises:
        ConfigError: it is unknown or not installed, or its settings are invalid.
    """
    variable, entry_point = _EXPORTERS, name
    if name == "otlp":
        variable = next((each for each in _PROTOCOLS if environ.get(each, "").strip()), _PROTOCOLS[1])
        protocol = environ.get(variable, "").strip() or "http/protobuf"
        if protocol not in _OTLP:
            raise ConfigError(f"expected http/protobuf or grpc, got {quote(protocol)} - at {variable}")
        entry_point = _OTLP[protocol]
    found = list(entry_points(group="opentelemetry_traces_exporter", name=entry_point))
    if not found:
        if entry_point == _OTLP["grpc"]:
            raise ConfigError(f"the exporter for grpc is not installed: pip install {_GRPC_PACKAGE} - at {variable}")
        raise ConfigError(f"expected otlp, console, none or an installed exporter, got {quote(name)} - at {_EXPORTERS}")
    try:
        return found[0].load()()
    except Exception as error:
        raise ConfigError(f"the exporter of traces does not start: {error} - at {variable}") from error
