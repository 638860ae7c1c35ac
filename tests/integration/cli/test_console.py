"""`dragoman console`: prints the address of the page, and opens it in a browser if there is a terminal and one."""

import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from bench.terminal import Terminal

from dragoman import cli
from dragoman.config.keys import KeyConfig
from dragoman.server.keys.ring import KeyRing
from support.console import served_console
from support.gateway import command, environment
from support.scripted_backend import in_thread, plain, run_in_thread
from support.source_path import SOURCES

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    keys = KeyRing({"boss": KeyConfig(secret="secret-of-admin", admin=True)})
    with run_in_thread(lambda: served_console(plain, keys=keys)) as address:
        yield address


def own_environment(home: Path, **variables: str) -> dict[str, str]:
    own = {name: value for name, value in environment(home).items() if name not in ("DISPLAY", "WAYLAND_DISPLAY")}
    return {**own, "DRAGOMAN_SERVER_PORT": "9", "PYTHONPATH": SOURCES, **variables}


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Run:
    for name, value in own_environment(tmp_path, BROWSER="false %s").items():
        monkeypatch.setenv(name, value)

    def run(*args: str) -> tuple[int, str, str]:
        status = cli.main(["console", *args])
        return status, *capsys.readouterr()

    return run


def test_address_is_printed_and_the_need_of_a_key_too(url: str, run: Run) -> None:
    note = "sign in with an API key that has admin = true; `dragoman keys create NAME --admin` creates one"
    assert run("--gateway", f"{url}/v1") == (0, f"{url}/console\n", f"dragoman: {note}\n")


def test_browser_is_opened_from_a_terminal(url: str, tmp_path: Path) -> None:
    browser = tmp_path / "browser"
    browser.write_text(f'#!/bin/sh\necho "$1" > {tmp_path}/opened\n')
    browser.chmod(browser.stat().st_mode | stat.S_IXUSR)
    environ = own_environment(tmp_path, BROWSER=f"{browser} %s")
    with Terminal(command("console", "--gateway", url), environ, tmp_path) as terminal:
        terminal.wait_for(f"{url}/console")
        assert terminal.wait_end() == 0
    assert (tmp_path / "opened").read_text() == f"{url}/console\n"


def test_why_there_is_no_console(run: Run) -> None:
    status, _, error = run()
    assert status == 1
    assert error == "dragoman console: error: no gateway answers at http://127.0.0.1:9; start one: dragoman serve\n"
    with in_thread(plain) as url:
        status, _, error = run("--gateway", url)
    assert status == 2
    assert "has no console: console.enabled = true turns it on" in error


@pytest.mark.skipif(os.name == "nt", reason="every Windows has a browser")
def test_a_browser_without_a_window_is_not_started(monkeypatch: pytest.MonkeyPatch) -> None:
    from dragoman.cli import console

    for name in ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(console.sys, "platform", "linux")
    assert not console.has_graphical_browser()
    monkeypatch.setenv("WAYLAND_DISPLAY", "wayland-0")
    assert console.has_graphical_browser()
