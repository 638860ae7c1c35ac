"""`dragoman formats new` and `dragoman formats test`: new formats pass as they are; failures show expected and got."""

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from dragoman.cli import main
from dragoman.cli.formats.templates import SHAPES
from support.plugin_package import installed_at, write_package


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.delenv("DRAGOMAN_CONFIG", raising=False)
    return tmp_path


@pytest.mark.parametrize("like", SHAPES)
def test_new_format_passes_its_cases(like: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["formats", "new", "acme", "--like", like]) == 0
    assert "acme (acme.py): 14 cases and round trips, all passed" in capsys.readouterr().out
    cases = Path("acme.txt").read_text()
    assert 'call get_weather {"city": "Paris"}\ncall ping {}' in cases
    assert 'reasoning "Paris is meant."\ncall get_weather' in cases
    assert main(["formats", "acme.py"]) == 0
    assert "calls open with" in capsys.readouterr().out


def test_new_format_parses_a_reply(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["formats", "new", "acme"]) == 0
    Path("reply.txt").write_text('<acme_call>{"name": "ping", "arguments": {}}</acme_call>')
    assert main(["parse", "reply.txt", "--format", "acme.py"]) == 0
    assert '"name": "ping"' in capsys.readouterr().out


def test_new_format_in_repository_is_written_to_its_folders(folder: Path) -> None:
    (folder / "src/dragoman/formats").mkdir(parents=True)
    (folder / "tests/data/formats").mkdir(parents=True)
    assert main(["formats", "new", "acme"]) == 0
    assert (folder / "src/dragoman/formats/acme.py").is_file()
    assert (folder / "tests/data/formats/acme.txt").is_file()
    assert main(["formats", "test", "src/dragoman/formats/acme.py"]) == 0


def test_failed_case_shows_expected_and_got(capsys: pytest.CaptureFixture[str]) -> None:
    main(["formats", "new", "acme"])
    file = Path("acme.txt")
    file.write_text(file.read_text().replace("call ping {}\n\n# no call", "call pong {}\n\n# no call"))
    capsys.readouterr()
    assert main(["formats", "test", "acme.txt"]) == 1
    out = capsys.readouterr().out
    assert "FAILED two calls (whole; - expected, + got)" in out
    assert "    - call pong {}\n    + call ping {}" in out
    assert out.endswith("14 cases and round trips, 1 failed\n")


def test_exception_of_format_is_a_failed_case(capsys: pytest.CaptureFixture[str]) -> None:
    main(["formats", "new", "acme", "--like", "mistral"])
    file = Path("acme.py")
    file.write_text(
        file.read_text().replace("    found = yield", "    raise ValueError('unfinished')\n    found = yield")
    )
    assert main(["formats", "test", "acme.txt"]) == 1
    out = capsys.readouterr().out
    assert "FAILED a single call (the format failed" in out
    assert "acme.py, line " in out


def test_closer_with_white_space_before_it_is_found(capsys: pytest.CaptureFixture[str]) -> None:
    main(["formats", "new", "acme", "--like", "mistral"])
    file = Path("acme.py")
    file.write_text(file.read_text().replace('"</acme_call>"', '"\\n</acme_call>"').replace('f"\\n{CLOSE}"', "CLOSE"))
    assert main(["formats", "test", "acme.txt"]) == 0


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["new", "hermes"], "'hermes' is a built-in format; choose another name"),
        (["new", "A b"], "expected a name of small letters, digits and '_', got 'A b'"),
        (["new"], "`dragoman formats new` needs the name of the new format"),
        (["test", "nothing.txt"], "cannot read nothing.txt: there is no such file"),
        (["test", "nothing.py"], "nothing.py has no cases: expected them in nothing.txt"),
        (["test", "hermes.txt"], "hermes.txt has no case; expected a line '# title'"),
        (["test", "unknown_format.txt"], "unknown format 'unknown_format'"),
        (
            ["broken.py"],
            "broken.py could not be imported: NameError: name 'nothing' is not defined (",
        ),
        (["empty.py"], "empty.py has no FORMAT; expected FORMAT = json_format"),
        (["hermes", "more"], "unexpected argument 'more': only `new` and `test` have a second one"),
        (["hermes", "--package"], "--like and --package are for `dragoman formats new NAME`"),
    ],
)
def test_wrong_arguments_are_one_line(words: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    for name, text in (("hermes.txt", ""), ("unknown_format.txt", ""), ("broken.py", "nothing"), ("empty.py", "")):
        Path(name).write_text(text)
    assert main(["formats", *words]) == 2
    assert message in capsys.readouterr().err


def test_existing_file_is_not_overwritten(capsys: pytest.CaptureFixture[str]) -> None:
    Path("acme.txt").write_text("mine")
    assert main(["formats", "new", "acme"]) == 2
    assert "acme.txt exists already" in capsys.readouterr().err
    assert Path("acme.txt").read_text() == "mine"
    assert not Path("acme.py").exists()


def test_list_has_formats_of_settings_and_packages(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "dragoman").mkdir()
    (folder / "dragoman/config.toml").write_text('[formats.mine]\nopener = "<mine>"\n')
    with installed_at(folder):
        text = "from dragoman.formats.hermes import FORMAT"
        write_package(folder, "acme_module", text, {"formats": {"acme": "FORMAT", "gone": "MISSING", "qwen": "FORMAT"}})
        assert main(["formats"]) == 0
        listed, errors = capsys.readouterr()
        assert main(["formats", "acme"]) == 0
        assert "origin          package acme 1.2" in capsys.readouterr().out
    rows = {line.split()[0]: line for line in listed.splitlines()}
    assert rows["acme"].endswith("[package acme 1.2]")
    assert rows["mine"].endswith("[settings]")
    assert "plug-in 'gone' of package acme 1.2 could not be loaded: AttributeError" in errors
    assert "plug-in 'qwen' of package acme 1.2 has the name of a built-in format" in errors


def test_doctor_lists_plugins(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from dragoman.cli.doctor.plugin_findings import plugins_found
    from dragoman.config.sections import Config

    with installed_at(folder):
        entries = {"formats": {"acme": "FORMAT"}, "hooks": {"audit": "MISSING"}}
        write_package(folder, "acme_module", "from dragoman.formats.hermes import FORMAT", entries)
        found = [(each.what, each.verdict) for each in plugins_found(Config())]
        used = Config(hooks=Config().hooks.__class__(enabled=("audit",)))
        broken = [each for each in plugins_found(used) if each.verdict == "no"]
    assert found == [("format acme", "ok"), ("hook audit", "note")]
    assert "could not be loaded: AttributeError" in broken[0].text


def test_package_that_pip_has_built_and_installed_is_found(folder: Path) -> None:
    """The written package is a real one: pip builds a wheel of it, and installs it."""
    assert main(["formats", "new", "acme", "--package"]) == 0
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
    quiet = {"check": True, "capture_output": True, "timeout": 120}
    options = ["--no-index", "--no-deps", "--no-build-isolation"]
    subprocess.run([*pip, "wheel", *options, "--wheel-dir", "wheels", "./dragoman-format-acme"], **quiet)  # type: ignore[call-overload]
    (wheel,) = Path("wheels").glob("*.whl")
    with zipfile.ZipFile(wheel) as packed:
        packed.extractall("site")
    code = "from dragoman import formats; print(formats.get('acme').write_calls([]) == '', formats.get('acme'))"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={"PYTHONPATH": str(folder / "site")},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.stdout == "True <Format acme>\n", done.stderr
