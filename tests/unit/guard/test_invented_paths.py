"""Paths that agents read: a name that the user wrote is known in any folder, a folder that the model made up is not."""

import json

import pytest

from dragoman.core.messages import Message, Request, Text, Tool
from dragoman.guard.invented_values.detector import InventedValueDetector

PATH = json.dumps({"type": "object", "properties": {"file_path": {"type": "string"}}, "required": ["file_path"]})
PATTERN = json.dumps({"type": "object", "properties": {"pattern": {"type": "string"}}, "required": ["pattern"]})
READ = Tool("Read", "Reads a file. The file_path must be an absolute path, such as /path/to/file.txt.", PATH)
TOOLS = (READ, Tool("Glob", "Finds files by pattern.", PATTERN), Tool("Bash", "Runs a command."))
ENVIRONMENT = """You are an agent that writes code. Use absolute paths such as /path/to/file.py.
<env>
Working directory: {folder}
Is directory a git repo: Yes
</env>"""
REMINDER = "<system-reminder>As you answer the user's questions, you can use the following context.</system-reminder>"


def is_reasked(path: str, asked: str, folder: str = "/srv/shop") -> bool:
    messages = (
        Message("system", (Text(ENVIRONMENT.format(folder=folder)),)),
        Message("user", (Text(REMINDER), Text(asked))),
    )
    detector = InventedValueDetector(Request("qwen2.5-coder-1.5b", messages, TOOLS), "auto")
    return detector.find(READ, json.dumps({"file_path": path})) is not None


@pytest.mark.parametrize(
    "path",
    [
        "notes.txt",
        "./notes.txt",
        "/srv/shop/notes.txt",
        "/srv/shop/docs/notes.txt",
        "~/notes.txt",
        "NOTES.TXT",
        "srv\\shop\\notes.txt",
    ],
)
def test_file_that_the_user_named_is_known_in_any_folder(path: str) -> None:
    assert not is_reasked(path, "Read notes.txt")


NAMES = ["a1b2c3.csv", "x.py", "2026-11.final_v2.md", "Отчёт.txt", "报告.txt", "my notes.txt", "q4.xlsx"]


@pytest.mark.parametrize("name", NAMES)
def test_name_of_any_form_is_known(name: str) -> None:
    assert not is_reasked(f"/srv/shop/{name}", f"Please read `{name}` and tell me what it is about.")


def test_working_directory_is_known() -> None:
    for path in ("/srv/shop", "/srv/shop/", "."):
        assert not is_reasked(path, "What is in this project?")


@pytest.mark.parametrize("path", ["/path/to/notes.txt", "path/to/notes.txt", "/path/to/your/notes.txt"])
def test_placeholder_for_a_folder_is_invented(path: str) -> None:
    assert is_reasked(path, "Read notes.txt")


@pytest.mark.parametrize("folder", ["/path/to", "/path/to/shop", "/srv"])
def test_folder_that_is_written_in_the_conversation_is_no_placeholder(folder: str) -> None:
    assert not is_reasked(f"{folder}/notes.txt", "Read notes.txt", folder)
    assert not is_reasked(f"{folder}/docs/notes.txt", "Read notes.txt", folder)
    assert is_reasked(f"{folder}/billing.py", "Read notes.txt", folder)
    assert not is_reasked("/path/to/notes.txt", "Read /path/to/notes.txt")
    assert not is_reasked("/path/to/notes.txt", "The notes are in '/path/to/'. Read notes.txt")


def test_file_that_occurs_nowhere_is_invented() -> None:
    assert is_reasked("/srv/shop/billing.py", "Fix the failing test.")


@pytest.mark.parametrize("verb", ["delete", "remove", "move", "edit", "update", "copy", "rename"])
def test_tool_that_changes_files_is_not_named_to_find_one(verb: str) -> None:
    tools = (READ, Tool(f"{verb}_file", "", PATH), Tool("list_files", "", PATTERN))
    detector = InventedValueDetector(Request("m", (Message("user", (Text("Fix it."),)),), tools), "reask")
    found = detector.find(READ, '{"file_path": "/srv/shop/billing.py"}')
    assert found is not None
    assert "call list_files, or" in found.reason
