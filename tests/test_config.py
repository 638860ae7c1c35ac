"""Settings: where they come from, what overrides what, and what is said of wrong ones."""

import subprocess
from pathlib import Path

import pytest

from dragoman.core.errors import ConfigError
from dragoman.server import config
from gateway import run


def load(text: str, tmp_path: Path, environ: dict[str, str] | None = None, **flags: object) -> config.Config:
    file = tmp_path / "config.toml"
    file.write_text(text)
    return config.load(file, environ or {}, flags)[0]


def refused(text: str, tmp_path: Path, **environ: str) -> str:
    with pytest.raises(ConfigError) as caught:
        load(text, tmp_path, environ)
    return str(caught.value).replace(str(tmp_path), "")


def test_defaults_need_no_file() -> None:
    found, origin = config.load(None, {}, {})
    assert found == config.Config()
    assert found.server.host == "127.0.0.1"
    assert origin == {}


def test_flags_go_over_the_environment_and_that_over_the_file(tmp_path: Path) -> None:
    file = tmp_path / "config.toml"
    file.write_text('[server]\nport = 1\nping_s = 2\nhold_s = 1\n[embedded]\nparallel = 3\n[aliases]\ngpt = "m"\n')
    environ = {"DRAGOMAN_SERVER_PORT": "2", "DRAGOMAN_SERVER_PING_S": "3", "DRAGOMAN_HOME": "/x", "PATH": "/bin"}
    found, origin = config.load(file, environ, {"server.port": 3, "server.host": None})
    assert (found.server.port, found.server.ping_s, found.server.hold_s) == (3, 3.0, 1.0)
    assert found.embedded.parallel == 3
    assert found.aliases == {"gpt": "m"}
    assert origin == {
        "server.port": "flag",
        "server.ping_s": "DRAGOMAN_SERVER_PING_S",
        "server.hold_s": str(file),
        "embedded.parallel": str(file),
        "aliases.gpt": str(file),
    }


def test_every_setting_can_be_a_variable() -> None:
    environ = {
        "DRAGOMAN_SERVER_KEYS": "one, two,",
        "DRAGOMAN_EMBEDDED_ENABLED": "false",
        "DRAGOMAN_EMBEDDED_MODEL": "own.gguf",
        "DRAGOMAN_EMBEDDED_LOAD_TIMEOUT_S": "1.5",
    }
    found, _ = config.load(None, environ, {})
    assert found.server.keys == ("one", "two")
    assert found.embedded.enabled is False
    assert found.embedded.model == "own.gguf"
    assert found.embedded.load_timeout_s == 1.5


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[server]\nprot = 1", "unknown setting 'server.prot'; did you mean 'server.port'? - in /config.toml"),
        ("[sever]\nport = 1", "unknown setting 'sever.port'; did you mean 'server.port'? - in /config.toml"),
        ("port = 1", "unknown setting 'port'"),
        ("server = 5", "unknown setting 'server'"),
        ('[server]\nport = "http"', "Expected `int`, got `str` - at server.port, from /config.toml"),
        ("[server]\nport = 65536", "Expected `int` <= 65535 - at server.port, from /config.toml"),
        ("[server]\nport = -1", "Expected `int` >= 0 - at server.port, from /config.toml"),
        ("[server]\nkeys = [5]", "Expected `str`, got `int` - at server.keys, from /config.toml"),
        ('[server]\nkeys = [""]', "got an empty one - at server.keys"),
        ("[server]\nping_s = 16", "Expected `float` <= 15.0 - at server.ping_s, from /config.toml"),
        ("[embedded]\nparallel = 0", "Expected `int` >= 1 - at embedded.parallel, from /config.toml"),
        ("[aliases]\na = 5", "Expected `str`, got `int` - at aliases, from /config.toml"),
        ("[server\n", "/config.toml is not TOML"),
    ],
)
def test_what_is_wrong_is_named_with_its_place(text: str, words: str, tmp_path: Path) -> None:
    assert words in refused(text, tmp_path)


def test_what_is_wrong_in_the_environment_is_named_too(tmp_path: Path) -> None:
    where = "Expected `int`, got `str` - at server.port, from DRAGOMAN_SERVER_PORT"
    assert refused("", tmp_path, DRAGOMAN_SERVER_PORT="http") == where
    told = refused("", tmp_path, DRAGOMAN_SERVER_PROT="1")
    assert told == "unknown setting DRAGOMAN_SERVER_PROT; did you mean 'DRAGOMAN_SERVER_PORT'? - in the environment"
    assert "unknown setting 'server'" in refused("server = 5", tmp_path, DRAGOMAN_SERVER_PORT="1")


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"cannot read the configuration .*none.toml: No such file or directory"):
        config.load(tmp_path / "none.toml", {}, {})
    (tmp_path / "latin.toml").write_bytes(b'[embedded]\nmodel = "\xe9"')
    with pytest.raises(ConfigError, match="is not TOML"):
        config.load(tmp_path / "latin.toml", {}, {})


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.5", "gateway.example", ""])
def test_off_loopback_a_key_is_required(host: str, tmp_path: Path) -> None:
    told = refused(f'[server]\nhost = "{host}"', tmp_path)
    assert told.startswith(f"server.host is {host!r}, which other machines can reach: set server.keys")
    assert load(f'[server]\nhost = "{host}"\nkeys = ["k"]', tmp_path).server.host == host


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "::1"])
def test_on_loopback_none_is(host: str, tmp_path: Path) -> None:
    assert load(f'[server]\nhost = "{host}"', tmp_path).server.host == host


def test_every_setting_says_what_it_is_for() -> None:
    for key, kind, _, meaning in config.documented():
        assert meaning.endswith("."), key
        assert kind, key


# The command line


def check(home: Path, *args: str, **environ: str) -> "subprocess.CompletedProcess[str]":
    return run(home, "serve", "--check", *args, **environ)


def test_check_says_what_holds_and_why_and_masks_keys(tmp_path: Path) -> None:
    file = tmp_path / ".config" / "dragoman" / "config.toml"
    file.parent.mkdir(parents=True)
    file.write_text('[server]\nkeys = ["very-secret-1", "very-secret-2"]\n[aliases]\ngpt-4o = "smollm2-135m"\n')
    done = check(tmp_path, "--port", "9000", DRAGOMAN_EMBEDDED_QUEUE="3")
    assert done.returncode == 0
    lines = done.stdout.splitlines()
    assert f"server.keys = (2 keys)  [{file}]" in lines
    assert "server.port = 9000  [flag]" in lines
    assert "embedded.queue = 3  [DRAGOMAN_EMBEDDED_QUEUE]" in lines
    assert "server.host = '127.0.0.1'  [default]" in lines
    assert f"aliases.gpt-4o = 'smollm2-135m'  [{file}]" in lines
    assert lines[-1] == "settings are good"
    assert "secret" not in done.stdout + done.stderr


def test_the_file_may_be_named(tmp_path: Path) -> None:
    file = tmp_path / "own.toml"
    file.write_text("[server]\nport = 5\n")
    assert f"server.port = 5  [{file}]" in check(tmp_path, "--config", str(file)).stdout
    assert f"server.port = 5  [{file}]" in check(tmp_path, DRAGOMAN_CONFIG=str(file)).stdout


@pytest.mark.parametrize(
    ("args", "environ", "words"),
    [
        (["--config", "none.toml"], {}, "cannot read the configuration none.toml: No such file or directory"),
        (["--prot", "1"], {}, "unrecognized arguments: --prot 1"),
        (["--port", "http"], {}, "argument --port: invalid int value: 'http'"),
        (["--port", "70000"], {}, "Expected `int` <= 65535 - at server.port, from flag"),
        (["--host", "0.0.0.0"], {}, "server.host is '0.0.0.0', which other machines can reach"),
        ([], {"DRAGOMAN_SERVER_PORT": "x"}, "at server.port, from DRAGOMAN_SERVER_PORT"),
    ],
)
def test_wrong_settings_end_with_status_2(args: list[str], environ: dict[str, str], words: str, tmp_path: Path) -> None:
    done = check(tmp_path, *args, **environ)
    assert done.returncode == 2
    assert words in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""


def test_nothing_to_serve(tmp_path: Path) -> None:
    done = run(tmp_path, "serve", DRAGOMAN_EMBEDDED_ENABLED="false")
    assert done.returncode == 2
    assert "nothing to serve" in done.stderr


def test_an_unknown_model(tmp_path: Path) -> None:
    done = run(tmp_path, "serve", "--port", "0", "--model", "smolm2-135m")
    assert done.returncode == 2
    assert "unknown model 'smolm2-135m'; did you mean 'smollm2-135m'?" in done.stderr
