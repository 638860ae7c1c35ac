"""What an API key may use."""

import pytest

from dragoman.core.client import Permissions


@pytest.mark.parametrize(
    ("patterns", "name", "is_admitted"),
    [
        ((), "anything", True),
        (("qwen*", "coder"), "qwen3-4b", True),
        (("qwen*", "coder"), "Coder", True),
        (("Qwen*",), "qwen3", True),
        (("qwen*", "coder"), "my-coder", False),
        (("qwen*", "coder"), "coder\n", False),
        (("m?", "[ab]*"), "m1", True),
        (("m?", "[ab]*"), "b/c", True),
        (("m?", "[ab]*"), "m12", False),
        (("a.b",), "a-b", False),
        (("gpt-4|*",), "gpt-4", False),
    ],
)
def test_patterns_match_whole_names_in_any_case(patterns: tuple[str, ...], name: str, is_admitted: bool) -> None:
    limited = Permissions(models=patterns, upstreams=patterns, tools=patterns)
    assert limited.admits_model(name) is is_admitted
    assert limited.admits_upstream(name) is is_admitted
    assert limited.admits_tool(name) is is_admitted


def test_long_names_take_linear_time() -> None:
    limited = Permissions(models=("*a*a*a*a*a*a*a*b",))
    assert not limited.admits_model("a" * 50_000)
