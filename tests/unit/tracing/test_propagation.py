"""Trace headers become contexts of spans, and headers again."""

import pytest
from opentelemetry.trace import get_current_span

from dragoman import trace_context
from dragoman.tracing.propagation import parent_context, trace_headers

PARENT = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


def returned(headers: dict[str, str]) -> dict[str, str]:
    """The headers of the context that these headers stand for."""
    return trace_headers(get_current_span(parent_context(trace_context.read(headers))).get_span_context())


@pytest.mark.parametrize(
    ("state", "kept"),
    [
        ("vendor=value", "vendor=value"),
        ("a=1, tenant@b=x y!,\t,c*/_-=2", "a=1,tenant@b=x y!,c*/_-=2"),
        ("1a@b=1", "1a@b=1"),
        ("A=1", None),
        ("1a=1", None),
        ("a", None),
        ("a=", None),
        ("a=1,a=2", None),
        ("a=b=c", None),
        (" , ", None),
        (",".join(f"k{n}=1" for n in range(32)), ",".join(f"k{n}=1" for n in range(32))),
        (",".join(f"k{n}=1" for n in range(33)), None),
        ("a=" + "x" * 256, "a=" + "x" * 256),
        ("a=" + "x" * 257, None),
        ("," * 8000, None),
    ],
)
def test_state_is_kept_only_if_all_of_it_is_valid(
    state: str, kept: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    expected = {"traceparent": PARENT} | ({"tracestate": kept} if kept else {})
    assert returned({"traceparent": PARENT, "tracestate": state}) == expected
    assert caplog.records == []


@pytest.mark.parametrize(("flags", "kept"), [("00", "00"), ("01", "01"), ("03", "03"), ("ff", "03")])
def test_known_flags_are_kept(flags: str, kept: str) -> None:
    assert returned({"traceparent": PARENT[:-2] + flags}) == {"traceparent": PARENT[:-2] + kept}


def test_later_version_is_continued_in_own_version() -> None:
    assert returned({"traceparent": f"01{PARENT[2:]}-more"}) == {"traceparent": PARENT}


def test_without_headers_there_is_no_parent() -> None:
    assert not get_current_span(parent_context({})).get_span_context().is_valid
