"""The command `dragoman pull`: its output and progress bar."""

import argparse
import hashlib
import io
import re
from pathlib import Path

import pytest

from dragoman.backends.embedded import weights
from dragoman.backends.embedded.weights import checksums
from dragoman.catalog import models
from dragoman.cli import pull
from dragoman.cli.pull.progress_bar import ProgressBar
from dragoman.core.errors import ConfigError, UpstreamError


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("DRAGOMAN_HOME", str(tmp_path))
    return tmp_path / "weights"


def run(*argv: str) -> int:
    parser = argparse.ArgumentParser()
    pull.add(parser.add_subparsers())
    args = parser.parse_args(["pull", *argv])
    code: int = args.run(args)
    return code


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def test_pull_list_shows_models(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    home.mkdir()
    (home / "qwen3-4b.gguf").write_bytes(b"GGUF")
    assert run("--list") == 0
    head, *rows = capsys.readouterr().out.splitlines()
    assert head.split() == ["NAME", "SIZE", "LICENCE", "HERE", "WHAT", "IT", "IS"]
    assert rows[0].startswith("smollm2-135m (default)  98.4 MB   Apache-2.0  no    Starts in a second")
    assert rows[0].endswith(" Also called smollm2, smollm2-135m-instruct.")
    assert [row.split()[0] for row in rows[: len(models.models())]] == [model.name for model in models.models()]
    assert any(row.startswith("qwen3-4b ") and " yes " in row for row in rows)
    assert "qwen2.5-coder-1.5b: The mirror on the Python package index is a re-upload by a third party" in rows[-1]


def test_pull_list_is_wrapped_to_terminal_width() -> None:
    assert max(map(len, pull.format_model_list(80).splitlines())) <= 80
    assert sorted(pull.format_model_list(80).split()) == sorted(pull.format_model_list().split())


def test_downloaded_model_is_not_downloaded_again(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    home.mkdir()
    file, model = home / "smollm2-135m.gguf", models.default()
    with file.open("wb") as sparse:
        sparse.truncate(model.size_bytes)
    checksums.keep(file, model.sha256)
    assert run() == 0
    out, err = capsys.readouterr()
    assert out == f"{home / 'smollm2-135m.gguf'}\n"
    assert err == "smollm2-135m is already downloaded (--force downloads it again)\n"


def test_changed_weights_are_downloaded_again(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    home.mkdir()
    (home / "smollm2-135m.gguf").write_bytes(b"GGUF")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    with pytest.raises(UpstreamError, match="could not fetch"):
        run()
    assert "smollm2-135m is damaged or outdated" in capsys.readouterr().err


def test_unknown_model_is_rejected_with_suggestion() -> None:
    with pytest.raises(ConfigError, match="did you mean 'smollm2-135m'"):
        run("smollm2-135")


def last_drawn(out: Terminal) -> list[str]:
    """What the terminal shows at the end, in lines."""
    shown = re.sub(r"\x1b\[[?0-9;]*[a-zA-Z]", lambda found: "\f" if found[0] == "\x1b[2K" else "", out.getvalue())
    return [line for line in shown.rpartition("\f")[2].splitlines() if line.strip()]


def test_progress_bar_shows_size_speed_and_time_left_on_terminal() -> None:
    out, clock = Terminal(), Clock()
    bar = ProgressBar(out, clock)
    for second in range(3):
        clock.now = float(second)
        bar(second * 1_000_000, 4_000_000, f"part {second + 1} of 4")
    bar.close()
    bar.close()
    (line,) = last_drawn(out)
    assert line.startswith("part 3 of 4 ")
    assert "2.0/4.0 MB 1.0 MB/s 0:00:02" in line


def test_progress_bar_prints_line_per_part_and_tenth_without_terminal() -> None:
    out, clock = io.StringIO(), Clock()
    bar = ProgressBar(out, clock)
    for percent in range(0, 40, 2):
        bar(percent * 10_000_000, 1_000_000_000, f"part {percent // 30 + 1} of 4")
        clock.now += 1.0
    bar(0, 0, "waiting for another pull")
    bar.close()
    assert out.getvalue().splitlines() == [
        "  0 %  0.0 MB of 1.00 GB  0.0 MB/s  part 1 of 4",
        " 10 %  100.0 MB of 1.00 GB  20.0 MB/s  part 1 of 4",
        " 20 %  200.0 MB of 1.00 GB  20.0 MB/s  part 1 of 4",
        " 30 %  300.0 MB of 1.00 GB  20.0 MB/s  part 2 of 4",
        "0.0 MB  0.0 MB/s  waiting for another pull",
    ]


def test_progress_bar_without_terminal_ends_each_step_at_100_percent() -> None:
    out, clock = io.StringIO(), Clock()
    bar = ProgressBar(out, clock)
    for what in ("downloading", "checking"):
        for percent in (0, 1, 50, 74, 100, 100):
            clock.now += 0.1
            bar(percent * 10_000, 1_000_000, what)
    assert [(line[:5], line.split()[-1]) for line in out.getvalue().splitlines()] == [
        *(("  0 %", "downloading"), ("100 %", "downloading"), ("  0 %", "checking"), ("100 %", "checking")),
    ]


def test_progress_bar_has_one_line_per_step_on_terminal() -> None:
    out = Terminal()
    bar = ProgressBar(out, Clock())
    bar(74, 100, "downloading")
    bar(1, 100, "checking")
    bar.close()
    assert [line.split()[0] for line in last_drawn(out)] == ["downloading", "checking"]


def test_ctrl_c_during_pull_prints_command_to_continue(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(*_: object, **__: object) -> Path:
        raise KeyboardInterrupt

    monkeypatch.setattr(weights, "download", interrupted)
    with pytest.raises(KeyboardInterrupt):
        run("smollm2")
    out, err = capsys.readouterr()
    assert err == "stopped; complete parts are kept; to continue: dragoman pull smollm2\n"
    assert out == ""


def test_resumed_pull_speed_counts_only_new_bytes() -> None:
    out, clock = io.StringIO(), Clock()
    bar = ProgressBar(out, clock)
    bar(3_000_000, 4_000_000, "part 4 of 5")
    clock.now = 2.0
    bar(4_000_000, 4_000_000, "part 4 of 5")
    assert out.getvalue().splitlines()[-1] == "100 %  4.0 MB of 4.0 MB  0.5 MB/s  part 4 of 5"


@pytest.mark.model
def test_pull_downloads_default_model(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run() == 0
    found = Path(capsys.readouterr().out.strip())
    assert found == weights.weights_path("smollm2-135m") == home / "smollm2-135m.gguf"
    assert hashlib.sha256(found.read_bytes()).hexdigest() == models.default().sha256
