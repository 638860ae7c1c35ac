"""A hostile chat template fails its own request only, and never the gateway's process."""

import resource
import signal
from collections.abc import Iterator
from types import FrameType

import pytest

from dragoman.backends.text_mode.chat_template import ChatTemplate
from dragoman.core.errors import ConfigError
from dragoman.prompting import jinja_sandbox, render_process
from support import cpu_cost

HOSTILE = {
    "loops": "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}",
    "format": "{{ '%99999999999d'|format(1) }}",
    "doubling": "{% set n = namespace(x='ab') %}{% for i in range(60) %}{% set n.x = n.x ~ n.x %}{% endfor %}{{ n.x }}",
    "product": "{{ 'a' * 10 ** 11 }}",
    "calls": "{% macro f(n) %}{% if n %}{{ f(n - 1) }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(60) }}",
}


@pytest.fixture(autouse=True)
def short_cpu_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(render_process, "CPU_S", 0.1)


OWN_CPU_S = 2
"""CPU time of this process for a whole test; rendering in this process would take more."""
OWN_MEMORY_BYTES = 4 << 30
"""Memory that a test may add."""


@pytest.fixture(autouse=True)
def own_process_limits() -> Iterator[None]:
    """Fails a test, instead of hanging or filling the memory, if a template is rendered in this process."""

    def too_long(_: int, __: FrameType | None) -> None:
        pytest.fail(f"expected templates to be rendered in another process, got {OWN_CPU_S} s of CPU time in this one")

    with open("/proc/self/statm") as statm:
        bytes_now = int(statm.read().split()[0]) * resource.getpagesize()
    memory = resource.getrlimit(resource.RLIMIT_AS)
    handler = signal.signal(signal.SIGPROF, too_long)
    resource.setrlimit(resource.RLIMIT_AS, (bytes_now + OWN_MEMORY_BYTES, memory[1]))
    signal.setitimer(signal.ITIMER_PROF, OWN_CPU_S)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        resource.setrlimit(resource.RLIMIT_AS, memory)
        signal.signal(signal.SIGPROF, handler)


@pytest.mark.parametrize("name", HOSTILE)
def test_template_beyond_cpu_or_memory_limit_is_rejected(name: str) -> None:
    made = render_process.load_template(HOSTILE[name])
    with pytest.raises(jinja_sandbox.RENDER_ERRORS, match="it takes"):
        made.render(messages=[])
    with cpu_cost.measured() as taken, pytest.raises(jinja_sandbox.RENDER_ERRORS, match="it takes"):
        made.render(messages=[])  # the template is now blocked
    assert taken[0] < 0.1


def test_other_templates_render_after_a_hostile_one() -> None:
    with pytest.raises(jinja_sandbox.RENDER_ERRORS):
        render_process.load_template(HOSTILE["loops"] + "again").render()
    made = render_process.load_template("{% for m in messages %}{{ m.content }}{{ m.a | tojson }}{% endfor %}")
    assert (
        made.render(messages=[{"content": "é\ud83d", "a": jinja_sandbox.VerbatimJson({"b": 1}, '{"b":  1}')}])
        == 'é\ud83d{"b":  1}'
    )


def test_template_is_not_blocked_after_a_large_conversation(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(render_process, "BLOCK_BELOW_BYTES", 1000)
    made = render_process.load_template(
        "{% for m in messages %}{% for n in m * 3000 %}{% for o in m * 300 %}{% endfor %}{% endfor %}{% endfor %}-"
    )
    with pytest.raises(jinja_sandbox.RENDER_ERRORS, match="longer than"):
        made.render(messages=["x" * 1000] * 10)
    assert made.render(messages=[]) == "-"


def test_render_process_is_restarted_after_it_ends() -> None:
    made = render_process.load_template("a{{ b }}")
    assert made.render(b=1) == "a1"
    render_process._process.close()
    assert made.render(b=2) == "a2"


def test_invalid_jinja_is_reported() -> None:
    with pytest.raises(ConfigError, match="cannot be read"):
        render_process.load_template("{% for %}é")


def test_builtin_template_is_rendered_in_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(render_process, "SandboxedTemplate", None)
    assert ChatTemplate("", "", "", ()).source == ""
