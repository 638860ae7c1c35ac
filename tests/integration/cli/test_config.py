"""Settings: sources, precedence, and error messages for invalid values."""

import contextlib
import json
import socket
import subprocess
import tomllib
from pathlib import Path

import pytest

from dragoman import config
from dragoman.config.server import ServerConfig
from dragoman.core.errors import ConfigError
from dragoman.server import ports
from support.gateway import run


def load(text: str, tmp_path: Path, environ: dict[str, str] | None = None, **flags: object) -> config.Config:
    file = tmp_path / "config.toml"
    file.write_text(text)
    return config.load(file, environ or {}, flags)[0]


def config_error(text: str, tmp_path: Path, **environ: str) -> str:
    with pytest.raises(ConfigError) as caught:
        load(text, tmp_path, environ)
    return str(caught.value).replace(str(tmp_path), "")


def test_defaults_need_no_file() -> None:
    found, origin = config.load(None, {}, {})
    keys_path = str(config.default_path().with_name("keys.toml"))
    assert found == config.Config(server=ServerConfig(keys_path=keys_path))
    assert found.server.host == "127.0.0.1"
    assert origin == {}


def test_flags_override_environment_and_environment_overrides_file(tmp_path: Path) -> None:
    file = tmp_path / "config.toml"
    file.write_text(
        "[server]\nport = 1\nkeepalive_interval_s = 2\nmax_status_delay_s = 1\n"
        '[embedded]\nmax_concurrency = 3\n[model_aliases]\ngpt = "m"\n'
    )
    environ = {
        "DRAGOMAN_SERVER_PORT": "2",
        "DRAGOMAN_SERVER_KEEPALIVE_INTERVAL_S": "3",
        "DRAGOMAN_HOME": "/x",
        "PATH": "/bin",
    }
    found, origin = config.load(file, environ, {"server.port": 3, "server.host": None})
    assert (found.server.port, found.server.keepalive_interval_s, found.server.max_status_delay_s) == (3, 3.0, 1.0)
    assert found.embedded.max_concurrency == 3
    assert found.model_aliases == {"gpt": "m"}
    assert origin == {
        "server.port": "command line",
        "server.keepalive_interval_s": "DRAGOMAN_SERVER_KEEPALIVE_INTERVAL_S",
        "server.max_status_delay_s": str(file),
        "embedded.max_concurrency": str(file),
        "model_aliases.gpt": str(file),
    }


def test_settings_are_read_from_environment_variables() -> None:
    environ = {
        "DRAGOMAN_SERVER_API_KEYS": "first-key, second-key,",
        "DRAGOMAN_EMBEDDED_ENABLED": "false",
        "DRAGOMAN_EMBEDDED_MODEL": "own.gguf",
        "DRAGOMAN_EMBEDDED_LOAD_TIMEOUT_S": "1.5",
    }
    found, _ = config.load(None, environ, {})
    assert found.server.api_keys == ("first-key", "second-key")
    assert found.embedded.enabled is False
    assert found.embedded.model == "own.gguf"
    assert found.embedded.load_timeout_s == 1.5


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[server]\nprot = 1", "unknown setting 'server.prot'; did you mean 'server.port'? - in /config.toml"),
        ("[sever]\nport = 1", "unknown setting 'sever.port'; did you mean 'server.port'? - in /config.toml"),
        ("port = 1", "unknown setting 'port'; did you mean [server] port? - in /config.toml"),
        ("max_concurency = 1", "unknown setting 'max_concurency'; did you mean [embedded] max_concurrency?"),
        ('[servers.lan]\nurl = "u"', "unknown setting 'servers.lan'; did you mean [upstreams.lan]? - in /config.toml"),
        ('[servers]\nurl = "u"', "unknown setting 'servers.url'; the sections are [server], [capture], [embedded]"),
        ('[aliases]\na = "m"', "unknown setting 'aliases.a'; did you mean [model_aliases]? - in /config.toml"),
        ("[embedded]\nqueue = 1", "unknown setting 'embedded.queue'; did you mean 'embedded.max_queue'?"),
        ("[embedded]\npull = 1", "unknown setting 'embedded.pull'; [embedded] has enabled, model, projector, "),
        ('["a.b"]\nc = 1', "unknown setting 'a.b.c'; the sections are [server], "),
        ("[upstreams.lan]\nqueue = 1", "unknown setting 'upstreams.lan.queue'; did you mean 'max_queue'? - in /con"),
        ("[upstreams.lan]\nplaces = 1", "unknown setting 'upstreams.lan.places'; an upstream has url, api, "),
        (
            '[upstreams.lan]\nurl = "u"\nmodel_overrides = 1',
            "expected a table, got 1 - at upstreams.lan.model_overrides, from /con",
        ),
        ("server = 5", "expected a table, [server], got 5 - at server, from /config.toml"),
        ('[server]\nport = "http"', 'expected a whole number, got "http" - at server.port, from /config.toml'),
        ("[server]\nport = 65536", "expected a whole number of at most 65535, got 65536 - at server.port, from /con"),
        ("[server]\nport = -1", "expected a whole number of at least 0, got -1 - at server.port, from /config.toml"),
        ("[server]\napi_keys = [5]", "expected text, got what is not shown - at server.api_keys, from /config.toml"),
        (
            '[server]\napi_keys = "k"',
            'got what is not shown - at server.api_keys, from /config.toml; write api_keys = ["…", "…"]',
        ),
        (
            '[mcp.x]\ncommand = "x --token abc"',
            'expected a list, got what is not shown - at mcp.x.command, from /config.toml; write command = ["…", "…"]',
        ),
        ('[server]\nallowed_hosts = "a"', 'expected a list, got "a" - at server.allowed_hosts, from /config.toml; wri'),
        ("[server]\nallowed_hosts = [true]", "expected text, got true - at server.allowed_hosts"),
        ('[server]\nallowed_hosts = ["["]', "expected a host's name, got '[' - at server.allowed_hosts"),
        (
            "[server]\ngraceful_shutdown_s = inf",
            "expected a finite number, got inf - at server.graceful_shutdown_s, from /config.toml",
        ),
        ("[embedded]\nenabled = 'ja'", 'expected true or false, got "ja" - at embedded.enabled'),
        *(
            (f'[server]\napi_keys = ["{key}"]', "expected API keys of at least 6 characters without blanks around them")
            for key in ("", " ", "k", "        ", " padded-key", "\\n")
        ),
        ('[server]\nallowed_hosts = ["*"]', "server.allowed_hosts has '*', by which every web page"),
        (
            "[server]\nkeepalive_interval_s = 16",
            "expected a number of at most 15, got 16 - at server.keepalive_interval_s, from /config.toml",
        ),
        (
            "[embedded]\nmax_concurrency = 0",
            "expected a whole number of at least 1, got 0 - at embedded.max_concurrency",
        ),
        (
            "[model_aliases]\na = 5",
            "expected the name of a model, or a list of names, got 5 - at model_aliases.a, from /config.toml",
        ),
        ("[server\n", "/config.toml is not TOML"),
    ],
)
def test_invalid_setting_is_reported_with_its_location(text: str, words: str, tmp_path: Path) -> None:
    assert words in config_error(text, tmp_path)


def test_invalid_environment_variable_is_reported(tmp_path: Path) -> None:
    where = 'expected a whole number, got "http" - at server.port, from DRAGOMAN_SERVER_PORT'
    assert config_error("", tmp_path, DRAGOMAN_SERVER_PORT="http") == where
    told = config_error("", tmp_path, DRAGOMAN_SERVER_PROT="1")
    assert told == "unknown setting DRAGOMAN_SERVER_PROT; did you mean 'DRAGOMAN_SERVER_PORT'? - in the environment"
    assert "expected a table, [server], got 5" in config_error("server = 5", tmp_path, DRAGOMAN_SERVER_PORT="1")
    assert 'got "nan" - at server.max_status_delay_s, from DRAGOMAN' in config_error(
        "", tmp_path, DRAGOMAN_SERVER_MAX_STATUS_DELAY_S="nan"
    )


@pytest.mark.parametrize("value", ["", " ", ",", " , "])
def test_empty_api_keys_variable_is_rejected(value: str, tmp_path: Path) -> None:
    told = config_error('[server]\napi_keys = ["a-long-key"]', tmp_path, DRAGOMAN_SERVER_API_KEYS=value)
    assert told == "DRAGOMAN_SERVER_API_KEYS is empty; give it a value, or unset it"


def test_unknown_dragoman_variables_are_reported() -> None:
    environ = {"DRAGOMAN_PORT": "1", "DRAGOMAN_HOME": "/x", "DRAGOMAN_CONFIG": "/y", "DRAGOMAN_SERVER_PORT": "2"}
    assert config.unknown_variables(environ) == [
        "the variable DRAGOMAN_PORT is not one of ours and does nothing; did you mean 'DRAGOMAN_SERVER_PORT'?"
    ]


def test_unreadable_config_file_is_reported(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"cannot read the configuration .*none.toml: No such file or directory"):
        config.load(tmp_path / "none.toml", {}, {})
    (tmp_path / "latin.toml").write_bytes(b'[embedded]\nmodel = "\xe9"')
    with pytest.raises(ConfigError, match="is not TOML"):
        config.load(tmp_path / "latin.toml", {}, {})


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.5", "gateway.example", ""])
def test_api_key_is_required_on_non_loopback_host(host: str, tmp_path: Path) -> None:
    told = config_error(f'[server]\nhost = "{host}"', tmp_path)
    assert told.startswith(f"server.host is {host!r}, which other machines can reach: set server.api_keys")
    assert load(f'[server]\nhost = "{host}"\napi_keys = ["a-long-key"]', tmp_path).server.host == host


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "::1"])
def test_api_key_is_optional_on_loopback_host(host: str, tmp_path: Path) -> None:
    assert load(f'[server]\nhost = "{host}"', tmp_path).server.host == host


def test_every_setting_has_description_and_type() -> None:
    for key, kind, _, meaning in config.setting_docs():
        assert meaning.endswith("."), key
        assert kind, key


# The command line


def check(home: Path, *args: str, **environ: str) -> "subprocess.CompletedProcess[str]":
    return run(home, "serve", "--print-config", *args, **environ)


def test_print_config_shows_values_and_origins_and_masks_keys(tmp_path: Path) -> None:
    file = tmp_path / ".config" / "dragoman" / "config.toml"
    file.parent.mkdir(parents=True)
    file.write_text(
        '[server]\napi_keys = ["very-secret-1", "very-secret-2"]\n[model_aliases]\ngpt-4o = "smollm2-135m"\n'
        '[mcp.search]\nurl = "https://search.example.com/mcp?key=very-secret-3"\n'
        '[mcp.books]\ncommand = ["books", "--api-key", "very-secret-4"]\n[mcp.files]\ncommand = ["files", "/srv"]\n'
        '[tools.web_search]\nuse = "searxng"\nurl = "http://me:very-secret-5@127.0.0.1:8888"\n'
        '[upstreams.far]\nurl = "http://me:very-secret-6@127.0.0.1:9/v1"\nproxy = "http://me:very-secret-7@proxy:3128"\n'
    )
    file.chmod(0o600)
    done = check(tmp_path, "--all", "--port", "9000", DRAGOMAN_EMBEDDED_MAX_QUEUE="3")
    assert done.returncode == 0
    lines = done.stdout.splitlines()
    assert f"# server.api_keys: 2 not shown  # {file}" in lines
    assert "# mcp.search.url: not shown" in done.stdout
    assert "# mcp.books.command: 3 not shown" in done.stdout
    assert 'mcp.files.command = ["files", "/srv"]' in done.stdout
    assert "# tools.web_search.url: not shown" in done.stdout
    assert "server.port = 9000  # command line" in lines
    assert "embedded.max_queue = 3  # DRAGOMAN_EMBEDDED_MAX_QUEUE" in lines
    assert lines[-1] == "# the settings are valid"
    assert "secret" not in done.stdout + done.stderr
    shown = tomllib.loads(done.stdout)
    assert shown["server"]["host"] == "127.0.0.1"
    assert shown["server"]["allowed_hosts"] == []
    assert shown["embedded"]["model"] == "smollm2-135m"
    assert shown["model_aliases"] == {"gpt-4o": "smollm2-135m"}
    assert done.stderr == ""


def test_print_config_shows_only_what_is_set(tmp_path: Path) -> None:
    file = tmp_path / "own.toml"
    file.write_text(
        '[server]\napi_keys = ["very-secret"]\n[upstreams.far]\nurl = "http://h/v1"\napi_key = "sk-secret"\n'
    )
    file.chmod(0o600)
    done = check(tmp_path, "--config", str(file), "--port", "9000")
    assert tomllib.loads(done.stdout) == {"server": {"port": 9000}, "upstreams": {"far": {"url": "http://h/v1"}}}
    assert "--all prints them too" in done.stdout
    rows = {row["key"]: row for row in json.loads(check(tmp_path, "--config", str(file), "--json").stdout)}
    assert rows["upstreams.far.url"]["value"] == "http://h/v1"
    assert "value" not in rows["server.api_keys"]
    assert "value" not in rows["upstreams.far.api_key"]


def test_print_config_reports_unknown_variables(tmp_path: Path) -> None:
    done = check(tmp_path, DRAGOMAN_PORT="9000")
    assert done.returncode == 0
    assert done.stderr.startswith("dragoman: the variable DRAGOMAN_PORT is not one of ours")


def test_invalid_api_keys_error_does_not_show_keys(tmp_path: Path) -> None:
    file = tmp_path / "own.toml"
    file.write_text('[server]\napi_keys = "very-secret"\n')
    assert "secret" not in check(tmp_path, "--config", str(file)).stderr


def test_printed_settings_are_toml_also_with_unusual_names(tmp_path: Path) -> None:
    file = tmp_path / "config.toml"
    file.write_text('[upstreams."a.b"]\nurl = "http://127.0.0.1:1/v1"\n[prices."vllm/*"]\nusd_per_second = 0.1\n')
    shown = tomllib.loads(run(tmp_path, "serve", "--print-config", "--config", str(file)).stdout)
    assert shown == {
        "upstreams": {"a.b": {"url": "http://127.0.0.1:1/v1"}},
        "prices": {"vllm/*": {"usd_per_second": 0.1}},
    }


def test_settings_with_missing_key_are_not_called_valid(tmp_path: Path) -> None:
    file = tmp_path / "config.toml"
    file.write_text('[upstreams.far]\nurl = "https://far.example/v1"\napi_key_env = "FAR_KEY"\n')
    shown = run(tmp_path, "serve", "--print-config", "--config", str(file))
    assert shown.returncode == 2
    assert "FAR_KEY" in shown.stderr
    assert "valid" not in shown.stdout


@pytest.mark.parametrize("args", [["--print-config"], ["--port", "0"]])
def test_alias_of_unknown_model_is_rejected(args: list[str], tmp_path: Path) -> None:
    (tmp_path / "own.toml").write_text('[model_aliases]\ngpt-4o = "smollm"\n')
    done = run(tmp_path, "serve", "--config", "own.toml", *args)
    assert done.returncode == 2
    assert "no backend serves 'smollm'; did you mean 'smollm2-135m'? - at model_aliases.gpt-4o" in done.stderr


def test_config_file_is_selected_by_flag_or_variable(tmp_path: Path) -> None:
    file = tmp_path / "own.toml"
    file.write_text("[server]\nport = 5\n")
    assert f"server.port = 5  # {file}" in check(tmp_path, "--config", str(file)).stdout
    assert f"server.port = 5  # {file}" in check(tmp_path, DRAGOMAN_CONFIG=str(file)).stdout


@pytest.mark.parametrize(
    ("args", "environ", "words"),
    [
        (["--config", "none.toml"], {}, "cannot read the configuration none.toml: No such file or directory"),
        (["--prot", "1"], {}, "unrecognized arguments: --prot 1"),
        (["--port", "http"], {}, "argument -p/--port: expected a number from 0 to 65535, got 'http'"),
        (["--port", "70000"], {}, "expected a number from 0 to 65535, got '70000'"),
        (["--model", "smolm2"], {}, "unknown model 'smolm2'; did you mean 'smollm2'?"),
        (["--model", "none.gguf"], {}, "expected the path of a .gguf file, got 'none.gguf', where there is none"),
        (["--host", "none.invalid"], {"DRAGOMAN_SERVER_API_KEYS": "a-long-key"}, "cannot listen on 'none.invalid': "),
        ([], {"DRAGOMAN_EMBEDDED_ENABLED": "false"}, "nothing to serve: embedded.enabled is false"),
        (
            [],
            {"DRAGOMAN_EMBEDDED_AUTO_DOWNLOAD": "false", "DRAGOMAN_HOME": "/nowhere"},
            "run: dragoman pull smollm2-135m",
        ),
        (["--host", "0.0.0.0"], {}, "server.host is '0.0.0.0', which other machines can reach"),
        ([], {"DRAGOMAN_SERVER_PORT": "x"}, "at server.port, from DRAGOMAN_SERVER_PORT"),
    ],
)
def test_invalid_settings_exit_with_status_2(
    args: list[str], environ: dict[str, str], words: str, tmp_path: Path
) -> None:
    done = check(tmp_path, *args, **environ)
    assert done.returncode == 2
    assert words in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""


def test_serve_without_backends_exits_with_status_2(tmp_path: Path) -> None:
    done = run(tmp_path, "serve", DRAGOMAN_EMBEDDED_ENABLED="false")
    assert done.returncode == 2
    assert "nothing to serve" in done.stderr


def test_serve_unknown_model_is_rejected_with_suggestion(tmp_path: Path) -> None:
    done = run(tmp_path, "serve", "--port", "0", "--model", "smolm2-135m")
    assert done.returncode == 2
    assert "unknown model 'smolm2-135m'; did you mean 'smollm2-135m'?" in done.stderr


def test_listening_socket_has_tcp_protocol() -> None:
    """asyncio sets TCP_NODELAY only on a socket whose protocol number is IPPROTO_TCP."""
    with contextlib.closing(ports.bind(ServerConfig(port=0))) as listener:
        assert listener.proto == socket.IPPROTO_TCP


@pytest.mark.parametrize(
    ("mode", "text", "may"),
    [
        (0o600, 'api_keys = ["a-secret-key"]', ""),
        (0o644, 'api_keys = ["a-secret-key"]', "read"),
        (0o666, 'api_keys = ["a-secret-key"]', "read and change"),
        (0o644, "port = 8485", ""),
        (0o644, '[mcp.x]\ncommand = ["x", "--token", "abc"]', "read"),
        (0o644, '[tools.web_search]\nuse = "searxng"\nurl = "http://me:abc@127.0.0.1:8888"', "read"),
    ],
)
def test_config_with_keys_readable_by_other_users_is_reported(mode: int, text: str, may: str, tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    path.write_text(f"[server]\n{text}\n")
    path.chmod(mode)
    told = config.readable_secrets(path, config.load(path, {}, {})[0])
    assert told.startswith(f"other users of this machine may {may} {path}" if may else "")
    assert bool(told) == bool(may)


def test_tables_in_tools_are_sections_of_their_own(tmp_path: Path) -> None:
    text = f'[tools]\nmax_rounds = 3\n[tools.web_search]\nuse = "local"\npath = "{tmp_path}"\n'
    environ = {"DRAGOMAN_TOOLS_WEB_SEARCH_MAX_RESULTS": "2", "DRAGOMAN_TOOLS_TIMEOUT_S": "9"}
    found = load(text, tmp_path, environ).tools
    assert (found.max_rounds, found.timeout_s) == (3, 9.0)
    assert (found.web_search.use, found.web_search.path, found.web_search.max_results) == ("local", str(tmp_path), 2)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "[tools.web_search]\nuss = 1\n",
            "unknown setting 'tools.web_search.uss'; did you mean 'tools.web_search.use'?",
        ),
        (
            "[tools.web_serch]\nurl = 'x'\n",
            "unknown setting 'tools.web_serch.url'; did you mean 'tools.web_search.url'?",
        ),
        (
            "[tools.web_search]\nmax_results = 0\n",
            "expected a whole number of at least 1, got 0 - at tools.web_search.max_results",
        ),
        ("[tools]\nmax_rounds = 'x'\n", 'expected a whole number, got "x" - at tools.max_rounds'),
        ("[tools]\nweb_search = 'x'\n", 'expected a table, [tools.web_search], got "x" - at tools.web_search'),
    ],
)
def test_wrong_settings_of_tools_are_explained(text: str, message: str, tmp_path: Path) -> None:
    assert config_error(text, tmp_path).startswith(message)


def test_mistyped_variable_of_tools_is_rejected(tmp_path: Path) -> None:
    message = config_error("", tmp_path, DRAGOMAN_TOOLS_WEB_SEARCH_PATHS="/x")
    assert message.startswith(
        "unknown setting DRAGOMAN_TOOLS_WEB_SEARCH_PATHS; did you mean 'DRAGOMAN_TOOLS_WEB_SEARCH_PATH'?"
    )
