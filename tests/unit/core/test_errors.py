"""Error messages suggest the nearest name and list all names; docs/errors.md documents the errors."""

import inspect
import json
import re
from typing import Any

import pytest

from dragoman import dialects
from dragoman.core import errors
from dragoman.core.errors import nearest, one_of
from support.paths import ROOT

SOURCE = inspect.getsource(errors)
PAGE = (ROOT / "docs/errors.md").read_text()
ARGUMENTS: dict[type, tuple[Any, ...]] = {
    errors.ContextOverflowError: (),
    errors.MethodNotAllowedError: ("/v1/models", "PUT", ["GET"]),
    errors.UnknownModelError: ("m", ["n"]),
}

NAMES = [
    ("a slip", "usr", ["user", "tool"], "; did you mean 'user'? expected 'user', 'tool'"),
    ("another case", "USER", ["user", "tool"], "; did you mean 'user'? expected 'user', 'tool'"),
    ("nothing near", "x", ["user", "tool"], "; expected 'user', 'tool'"),
    ("the only one there is", "getweather", ["get_weather"], "; did you mean 'get_weather'?"),
    ("the only one, not near", "x", ["get_weather"], "; expected 'get_weather'"),
    ("none at all", "x", [], "; expected none"),
]


@pytest.mark.parametrize(("name", "known", "said"), [row[1:] for row in NAMES], ids=[row[0] for row in NAMES])
def test_one_of_suggests_nearest_name_and_lists_all(name: str, known: list[str], said: str) -> None:
    assert one_of(name, known, "expected ") == said


def test_long_name_is_not_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    """Clients choose names, and comparing a name of megabytes takes seconds."""
    monkeypatch.setattr(errors.difflib, "get_close_matches", lambda *_, **__: pytest.fail("compared"))
    assert nearest("user" * 26, ["user"]) == ""


def test_unknown_model_error_lists_available_models() -> None:
    assert str(errors.UnknownModelError("smol", ["b", "a"])) == "unknown model 'smol'; available: 'a', 'b'"


def leaves() -> list[type[errors.DragomanError]]:
    """Returns the errors that are raised over HTTP; each has its own row on the page."""
    found = [getattr(errors, name) for name in re.findall(r"^class (\w+)\(", SOURCE, re.M)]
    inner = {base for each in found for base in each.__bases__} - {errors.RequestError}
    return [each for each in found if each not in inner and each not in (errors.ConfigError, errors.UsageError)]


@pytest.mark.parametrize("kind", [*leaves(), errors.DragomanError])
def test_errors_page_lists_status_type_and_code(kind: type[errors.DragomanError]) -> None:
    """The statuses, types and codes in docs/errors.md are those that each API returns."""
    (row,) = re.findall(rf"^\| .* \| `{kind.__name__}` \| (.*) \| (.*) \| .* \|$", PAGE, re.M)
    error = kind(*ARGUMENTS.get(kind, ("words",)))
    for dialect in dialects.names():
        body = json.loads(dialects.get(dialect).write_error(error))["error"]
        code = f", code `{body['code']}`" if body.get("code") else ""
        told = f"{dialects.get(dialect).status(error)} `{body['type']}`{code}"
        assert told == row[dialect == "anthropic_messages"]
