"""`dragoman.__all__`, the library page and the docstrings agree."""

import inspect
import re
from types import ModuleType
from typing import get_args

import pytest

import dragoman
from dragoman import dialects
from dragoman.core.errors import UsageError
from support.paths import ROOT

PAGE = (ROOT / "docs" / "library.md").read_text()
FUNCTIONS = [name for name in dragoman.__all__ if inspect.isfunction(getattr(dragoman, name))]


def test_all_names_exist_and_are_sorted() -> None:
    assert dragoman.__all__ == sorted(dragoman.__all__)
    assert dragoman.types.__all__ == sorted(dragoman.types.__all__)
    assert all(hasattr(dragoman, name) for name in dragoman.__all__)
    assert all(hasattr(dragoman.types, name) for name in dragoman.types.__all__)


def test_package_exports_only_all_names() -> None:
    names = {n for n, v in vars(dragoman).items() if not n.startswith("_") and not isinstance(v, ModuleType)}
    assert names | {"types"} == set(dragoman.__all__)


def test_library_page_documents_each_name() -> None:
    section = PAGE.partition("\n## All names\n")[2].partition("\n## ")[0]
    documented = re.findall(r"^\| `(\w+)` \|", section, re.M)
    assert documented == dragoman.__all__
    types = section.partition("`dragoman.types`:")[2]
    assert sorted(re.findall(r"`(\w+)`", types)) == dragoman.types.__all__


def test_public_names_do_not_shadow_builtins() -> None:
    assert not set(dragoman.__all__) & set(dir(__builtins__))


@pytest.mark.parametrize("name", FUNCTIONS)
def test_public_function_docstring_is_complete(name: str) -> None:
    function = getattr(dragoman, name)
    doc = inspect.getdoc(function) or ""
    section = doc.partition("Args:\n")[2].partition("\n\n")[0]
    assert re.findall(r"^    (\w+): ", section, re.M) == list(inspect.signature(function).parameters)
    assert "Returns:\n" in doc
    assert "Raises:\n" in doc
    assert re.search(rf"^    .*\b{name}\(", doc, re.M), "an example"


def test_api_type_lists_all_dialects() -> None:
    assert get_args(dragoman.Api) == dialects.names()


def test_parse_calls_returns_the_calls_only() -> None:
    text = "Two:" + "".join(f'\n<tool_call>{{"name": "{name}", "arguments": {{}}}}</tool_call>' for name in "fg")
    assert [call.name for call in dragoman.parse_calls(text, "hermes")] == ["f", "g"]
    assert [call.name for call in dragoman.parse_calls(text, "hermes", [dragoman.Tool("g")])] == ["g"]
    assert dragoman.parse_calls("No call.", "hermes") == []


def test_complete_prompt_after_text_is_rejected() -> None:
    body = {"model": "m", "messages": [{"role": "user", "content": "Hi"}]}
    session = dragoman.EngineSession(body, "hermes", created=0)
    session.feed("Hi")
    with pytest.raises(UsageError, match="before the first text"):
        session.complete_prompt("<|im_start|>assistant\n")
