"""Which variables ask for traces, and what is reported if they cannot be exported."""

import subprocess
import sys
import threading
import time

import pytest

from dragoman import extras
from dragoman.core.errors import ConfigError
from dragoman.tracing import environment

ENDPOINT = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:4318"}


@pytest.mark.parametrize(
    ("variables", "asks"),
    [
        ({}, ""),
        ({"OTEL_SERVICE_NAME": "gate", "OTEL_TRACES_SAMPLER": "always_on"}, ""),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": " "}, ""),
        (ENDPOINT, "OTEL_EXPORTER_OTLP_ENDPOINT"),
        ({"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://x/v1/traces"}, "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"),
        ({"OTEL_TRACES_EXPORTER": "console"}, "OTEL_TRACES_EXPORTER"),
        ({**ENDPOINT, "OTEL_TRACES_EXPORTER": "none"}, ""),
        ({**ENDPOINT, "OTEL_TRACES_EXPORTER": ""}, "OTEL_EXPORTER_OTLP_ENDPOINT"),
        ({**ENDPOINT, "OTEL_SDK_DISABLED": "TRUE"}, ""),
    ],
)
def test_variables_that_ask_for_traces(variables: dict[str, str], asks: str) -> None:
    assert environment.requesting_variable(variables) == asks
    if not asks:
        assert environment.tracing_from(variables) is None


def test_missing_extra_is_reported_with_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(extras, "missing_extras", lambda *names: list(names))
    assert environment.missing_message({}) == ""
    message = environment.missing_message(ENDPOINT)
    assert message == ("OTEL_EXPORTER_OTLP_ENDPOINT is set, but traces are not exported: pip install 'dragoman[otel]'")
    assert environment.tracing_from(ENDPOINT) is None


@pytest.mark.parametrize(
    ("variables", "message"),
    [
        (
            {"OTEL_TRACES_EXPORTER": "zipkin"},
            "expected otlp, console, none or an installed exporter, got 'zipkin' - at OTEL_TRACES_EXPORTER",
        ),
        (
            {**ENDPOINT, "OTEL_EXPORTER_OTLP_PROTOCOL": "json"},
            "expected http/protobuf or grpc, got 'json' - at OTEL_EXPORTER_OTLP_PROTOCOL",
        ),
        (
            {**ENDPOINT, "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL": "grpc"},
            "the exporter for grpc is not installed: pip install opentelemetry-exporter-otlp-proto-grpc"
            " - at OTEL_EXPORTER_OTLP_TRACES_PROTOCOL",
        ),
    ],
)
def test_unusable_exporter_is_error(variables: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError) as error:
        environment.tracing_from(variables)
    assert str(error.value) == message


def test_exit_waits_limited_time_for_collector() -> None:
    goes_on = threading.Event()
    began_s = time.monotonic()
    environment.close_within(goes_on.wait, 0.05)
    assert 0.05 <= time.monotonic() - began_s < 5
    goes_on.set()


def test_nothing_is_imported_without_variables() -> None:
    program = (
        "import sys, dragoman.server.run, dragoman.cli.serve\n"
        "from dragoman.tracing.environment import tracing_from\n"
        "assert tracing_from({}) is None\n"
        "print([name for name in sys.modules if name.startswith(('opentelemetry', 'google.protobuf'))])"
    )
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"
