"""Plug-ins of installed packages: found lazily, refused with one line if they are broken."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from dragoman import formats, plugins
from dragoman.core.errors import ConfigError
from dragoman.formats import auto
from support.plugin_package import installed_at, write_package

FORMAT = """
    from dragoman.parsing.tag_format import tag_format
    from dragoman.parsing.tag_format_config import TagFormatConfig

    FORMAT = tag_format("inside", TagFormatConfig("<acme>", "</acme>"), "acme")
    NUMBER = 7
"""


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Path]:
    with installed_at(tmp_path):
        yield tmp_path


def load(name: str) -> None:
    plugin = plugins.find(plugins.FORMATS, name)
    assert plugin is not None
    formats.load_plugin(plugin)


@pytest.mark.parametrize("target", ["FORMAT", ""])
def test_format_of_package_has_name_of_entry_point(site: Path, target: str) -> None:
    write_package(site, "acme_format", FORMAT, {"formats": {"acme": target}})
    assert formats.get("acme").name == "acme"
    assert formats.get("acme").write_calls([]) == ""
    assert "acme" not in formats.names()


def test_format_of_package_is_not_detected(site: Path) -> None:
    write_package(site, "acme_format", FORMAT, {"formats": {"acme": "FORMAT"}})
    formats.get("acme")
    assert "<acme>" not in auto.markup().calls


def test_unknown_format_suggests_format_of_package(site: Path) -> None:
    write_package(site, "acme_format", FORMAT, {"formats": {"acme_calls": "FORMAT"}})
    with pytest.raises(ConfigError, match="unknown format 'acme_cals'; did you mean 'acme_calls'"):
        formats.get("acme_cals")


@pytest.mark.parametrize("name", ["hermes", "qwen"])
def test_name_of_built_in_format_is_refused(site: Path, name: str) -> None:
    write_package(site, "acme_format", FORMAT, {"formats": {name: "FORMAT"}})
    with pytest.raises(ConfigError, match=rf"plug-in '{name}' of package acme 1.2 has the name of a built-in format"):
        load(name)
    assert formats.get(name).name == "hermes"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("raise ValueError('no weights')", r"could not be loaded: ValueError: no weights \(.*acme_format.py, line 1\)"),
        ("raise ValueError('one\\ntwo')", r"could not be loaded: ValueError: one \("),
        ("import sys; sys.exit(3)", r"could not be loaded: SystemExit: 3 \("),
        ("def f(:", r"could not be loaded: SyntaxError: .*acme_format.py, line 1"),
        ("import not_installed_anywhere", "could not be loaded: ModuleNotFoundError: No module named"),
        ("", "is not a format: expected a Format or a module with FORMAT, got no FORMAT in its module"),
        ("FORMAT = 7", "is not a format: expected a Format or a module with FORMAT, got int"),
    ],
)
def test_broken_format_is_one_line_where_its_name_is_used(site: Path, text: str, message: str) -> None:
    write_package(site, "acme_format", text, {"formats": {"acme": ""}})
    with pytest.raises(ConfigError, match=f"^plug-in 'acme' of package acme 1.2 {message}") as raised:
        formats.get("acme")
    assert "\n" not in str(raised.value)
    assert formats.get("hermes").name == "hermes"


def test_missing_object_is_named(site: Path) -> None:
    write_package(site, "acme_format", FORMAT, {"formats": {"acme": "MISSING"}})
    with pytest.raises(ConfigError, match="AttributeError: module 'acme_format' has no attribute 'MISSING'"):
        formats.get("acme")


def test_same_name_of_two_packages_is_refused(site: Path) -> None:
    write_package(site, "acme_format", FORMAT, {"formats": {"acme": "FORMAT"}})
    write_package(site, "other_format", FORMAT, {"formats": {"acme": "FORMAT"}}, package="other", version="3")
    with pytest.raises(ConfigError, match=r"two packages offer the format 'acme': .*acme 1.2.*; uninstall one of them"):
        formats.get("acme")


def test_entry_points_are_read_only_for_names_that_are_not_built_in() -> None:
    code = (
        "import sys, dragoman\n"
        "from dragoman import formats\n"
        "formats.get('hermes'); formats.get('qwen'); dragoman.parse('hi', 'auto')\n"
        "print('importlib.metadata' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "False\n"


BROKEN = "from dragoman.parsing.markup import Markup\n\nFORMAT = Markup(unknown_argument=1)\n"


def test_broken_built_in_format_does_not_disable_the_others(tmp_path: Path) -> None:
    """A module that cannot be imported is reported with its place, and every other format still reads."""
    code = (
        "import sys\n"
        "from dragoman import formats\n"
        f"formats.__path__.append({str(tmp_path)!r})\n"
        "import dragoman\n"
        "from dragoman.core.errors import ConfigError\n"
        'print(dragoman.parse(\'<tool_call>{"name": "f", "arguments": {}}</tool_call>\', \'auto\').parts[0].name)\n'
        "print(dragoman.detect_format('Qwen3-8B').format.name)\n"
        "try: formats.get('zzz_broken')\n"
        "except ConfigError as e: print(e)\n"
    )
    (tmp_path / "zzz_broken.py").write_text(BROKEN)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    first, second, third = done.stdout.splitlines()
    assert (first, second) == ("f", "hermes")
    assert third.endswith("zzz_broken.py, line 3)")
    assert third.startswith("format 'zzz_broken' could not be loaded: TypeError: Markup.__init__() got an unexpected")
    assert done.stderr.count("could not be loaded") == 1
