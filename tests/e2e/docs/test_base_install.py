"""`pip install dragoman` without extras: the library and `dragoman parse` work."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from dragoman import formats
from support.base_environment import command, dragoman, hide_extras

CALL = '<tool_call>\n{"name": "write", "arguments": {"text": "</tool_call>"}}\n</tool_call>'


def test_parse_prints_calls_as_json() -> None:
    done = dragoman("parse", text=CALL)
    assert done.returncode == 0, done.stderr
    (call,) = json.loads(done.stdout)["parts"]
    assert (call["name"], call["arguments"]) == ("write", '{"text": "</tool_call>"}')


def test_parse_is_independent_of_chunking() -> None:
    """Through a real pipe, with the text split at many positions."""
    code = "import sys\nfrom dragoman.cli import main\nsys.exit(main(['parse']))"
    for cut in range(0, len(CALL), 9):
        process = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert process.stdin is not None
        process.stdin.write(CALL[:cut].encode())
        process.stdin.flush()
        out, _ = process.communicate(CALL[cut:].encode(), timeout=60)
        assert [p["arguments"] for p in json.loads(out)["parts"]] == ['{"text": "</tool_call>"}']


def test_parse_detects_format_by_template_or_model_name(tmp_path: Path) -> None:
    """Without Jinja, the format is detected by the template's text."""
    (tmp_path / "chat.jinja").write_text("{{ '<tool_call>' }}")
    done = dragoman("parse", "--template", str(tmp_path / "chat.jinja"), text=CALL)
    assert [p["type"] for p in json.loads(done.stdout)["parts"]] == ["tool_call"]
    assert (
        "format hermes: '<tool_call>' stands in the chat template (chat templates need the templates extra"
        in done.stderr
    )
    done = dragoman("parse", "--model", "qwen3:8b", "--template", str(tmp_path / "chat.jinja"), text=CALL)
    assert "(2024-09)" in done.stderr, "the name told it"
    assert "pip install 'dragoman[templates]'" in done.stderr, "and what the prompt leaves open is not known"
    done = dragoman("parse", "--model", "gpt-oss:20b", text="<|channel|>final<|message|>Hi.")
    assert json.loads(done.stdout)["parts"] == [{"type": "text", "text": "Hi."}]
    assert "format harmony" in done.stderr


def test_parse_accepts_tools_file(tmp_path: Path) -> None:
    for tool in ({"type": "function", "function": {"name": "write"}}, {"name": "write", "input_schema": {}}):
        (tmp_path / "tools.json").write_text(json.dumps([tool]))
        done = dragoman("parse", "--lenient", "--tools", str(tmp_path / "tools.json"), text='{"name": "write"}')
        assert [p["name"] for p in json.loads(done.stdout)["parts"]] == ["write"], done.stderr


def test_tools_file_may_be_list_object_or_single_tool(tmp_path: Path) -> None:
    file = tmp_path / "tools.json"
    tool, nameless = '{"type": "function", "function": {"name": "write"}}', '{"type": "function", "function": {}}'
    for form, place in (("[%s]", "$[0]"), ('{"tools": [%s]}', "$.tools[0]"), ("%s", "$")):
        file.write_text(form % tool)
        done = dragoman("parse", "--lenient", "--tools", str(file), text='{"name": "write"}')
        assert [p["name"] for p in json.loads(done.stdout)["parts"]] == ["write"], done.stderr
        file.write_text(form % nameless)
        done = dragoman("parse", "--tools", str(file))
        assert done.returncode == 2
        assert f"--tools: missing required field 'name' - at {place}.function in {file}" in done.stderr


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "is empty; expected a list of tools"),
        ("[", "expected JSON: "),
        ("5", "expected array, got number - at $ in"),
    ],
)
def test_invalid_tools_file_is_rejected(text: str, words: str, tmp_path: Path) -> None:
    (tmp_path / "tools.json").write_text(text)
    done = dragoman("parse", "--tools", str(tmp_path / "tools.json"))
    assert done.returncode == 2
    assert words in done.stderr
    assert "body" not in done.stderr


def test_parse_reads_file(tmp_path: Path) -> None:
    (tmp_path / "reply.txt").write_text(CALL)
    done = dragoman("parse", str(tmp_path / "reply.txt"), text="unread")
    assert [p["name"] for p in json.loads(done.stdout)["parts"]] == ["write"]
    done = dragoman("parse", str(tmp_path / "none.txt"))
    assert done.returncode == 2
    assert f"cannot read {tmp_path / 'none.txt'}: No such file or directory" in done.stderr


@pytest.mark.skipif(sys.platform == "win32", reason="needs a POSIX pseudo-terminal")
def test_parse_on_terminal_prints_hint() -> None:
    ours, theirs = os.openpty()
    arguments = [sys.executable, "-c", command(), "parse"]
    process = subprocess.Popen(arguments, stdin=theirs, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    os.write(ours, b"Hi.\n\x04")
    out, err = process.communicate(timeout=60)
    os.close(ours)
    os.close(theirs)
    assert err == "reading from standard input; end with Ctrl-D\n"
    assert json.loads(out)["parts"][0]["text"].startswith("Hi.")


def test_parse_accepts_every_format_name_and_alias(tmp_path: Path) -> None:
    names = [name for format in formats.names() for name in (format, *formats.get(format).aliases)]
    (text := tmp_path / "text").write_text("Hi.")
    each = "for name in sys.argv[2:]:\n    assert main(['parse', '--format', name, sys.argv[1]]) == 0"
    code = f"{hide_extras()}\nfrom dragoman.cli import main\n{each}"
    done = subprocess.run([sys.executable, "-c", code, text, *names], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count('"finish": "stop"') == len(names) > 60


def test_parse_stream_prints_events() -> None:
    done = dragoman("parse", "--stream", text=f"Hi.\n{CALL}")
    kinds = [json.loads(line)["event"] for line in done.stdout.splitlines()]
    assert kinds == ["TextDelta", "ToolCallStart", "ToolCallDelta", "ToolCallEnd", "Finish"]


@pytest.mark.parametrize(("text", "reason"), [(CALL, "tool_calls"), (CALL[:-30], "stop"), ("Hi.", "stop")])
def test_parse_and_parse_stream_have_same_finish_reason(text: str, reason: str) -> None:
    assert json.loads(dragoman("parse", "--stream", text=text).stdout.splitlines()[-1])["reason"] == reason
    assert json.loads(dragoman("parse", text=text).stdout)["finish"] == reason


def test_formats_command_works_in_base_install() -> None:
    assert "hermes" in dragoman("formats").stdout


def test_serve_without_extras_prints_install_command() -> None:
    done = dragoman("serve")
    assert done.returncode == 2
    assert done.stderr.endswith("more than is installed: pip install 'dragoman[server,embedded]'\n")


def test_validation_without_guard_extra_prints_install_command() -> None:
    done = subprocess.run(
        [sys.executable, "-c", hide_extras() + "import dragoman.guard.validation.compiled_schema"],
        capture_output=True,
        text=True,
    )
    assert done.stderr.endswith("ConfigError: checking calls needs the guard extra: pip install 'dragoman[guard]'\n")


def test_print_config_works_in_base_install() -> None:
    done = dragoman("serve", "--print-config")
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith("# the settings are valid\n")
    assert "pip install 'dragoman[server,embedded]'" in done.stderr
    assert "unknown model 'x'" in dragoman("serve", "--print-config", "--model", "x").stderr


def test_mistyped_names_are_rejected_with_suggestion() -> None:
    for args, wanted in (
        (["prase"], "'parse'"),
        (["parse", "--format", "hemres"], "'hermes'"),
        (["parse", "--format", "qwenn"], "'qwen'"),
        (["parse", "--stram"], "'--stream'"),
        (["parse", "reply.txt", "--trunkated", "x"], "'--truncated'"),
    ):
        done = dragoman(*args)
        assert done.returncode == 2
        assert f"did you mean {wanted}" in done.stderr
