"""What a reload of the settings changes, and what waits for a restart."""

from pathlib import Path

import msgspec
import pytest

from dragoman.backends.http.config import HttpConfig
from dragoman.config import Config, load
from dragoman.config.changes import LIVE_SECTIONS, LIVE_SERVER_SETTINGS, changes
from dragoman.config.position import error_line, line_of
from dragoman.config.server import ServerConfig
from dragoman.core.errors import ConfigError
from dragoman.server.reload.report import ReloadReport

RUNNING = Config(
    server=ServerConfig(api_keys=("key-one",)),
    upstreams={"a": HttpConfig("http://a/v1"), "b": HttpConfig("http://b/v1")},
    model_aliases={"fast": "m"},
)


def test_equal_settings_have_no_changes() -> None:
    same = msgspec.json.decode(msgspec.json.encode(RUNNING), type=Config)
    assert changes(RUNNING, same) == (RUNNING, (), ())


def test_changed_added_and_removed_settings_are_named_without_values() -> None:
    new = msgspec.structs.replace(
        RUNNING,
        server=ServerConfig(api_keys=("key-two",)),
        upstreams={"a": HttpConfig("http://a/v1", api_key="secret", max_queue=3), "c": HttpConfig("http://c/v1")},
        model_aliases={"fast": "n", "slow": "m"},
    )
    config, changed, need_restart = changes(RUNNING, new)
    assert config == new
    assert changed == (
        "server.api_keys",
        "upstreams.a.api_key",
        "upstreams.a.max_queue",
        "upstreams.b (removed)",
        "upstreams.c (new)",
        "model_aliases.fast",
        "model_aliases.slow (new)",
    )
    assert need_restart == ()


def test_settings_that_wait_for_a_restart_keep_their_running_values() -> None:
    server = ServerConfig(port=9000, workers=3, api_keys=("key-two",))
    new = msgspec.structs.replace(
        RUNNING,
        server=server,
        embedded=msgspec.structs.replace(RUNNING.embedded, threads=3),
        response_store=msgspec.structs.replace(RUNNING.response_store, ttl_s=5),
    )
    config, changed, need_restart = changes(RUNNING, new)
    assert config == msgspec.structs.replace(RUNNING, server=ServerConfig(api_keys=("key-two",)))
    assert changed == ("server.api_keys",)
    assert need_restart == ("server.port", "server.workers", "embedded.threads", "response_store.ttl_s")


def test_live_settings_exist() -> None:
    assert set(LIVE_SECTIONS) <= set(Config.__struct_fields__)
    assert set(LIVE_SERVER_SETTINGS) <= set(ServerConfig.__struct_fields__)


FILE = '''# url = "in a comment"
[server]
port = 8484
[upstreams.far]
note = """
url = 1
"""
models = [
  "url",
]
url = "http://far/v1"
[model_aliases]
"gpt-4.1" = [
  "a",
  "b",
]
[upstreams.far.model_overrides."smollm*"]
tool_mode = "parse"
[tools]
web_search.use = "searxng"
[[routes]]
agent = "one"
model = "a"
[[routes]]
model = "b"
agent = "two"
'''


@pytest.mark.parametrize(
    ("key", "line"),
    [
        ("server.port", 3),
        ("upstreams.far", 4),
        ("upstreams.far.note", 5),
        ("upstreams.far.models", 8),
        ("upstreams.far.url", 11),
        ("model_aliases.gpt-4.1", 13),
        ("upstreams.far.model_overrides.smollm*.tool_mode", 18),
        ("tools.web_search.use", 20),
        ("routes[1].agent", 22),
        ("routes[2].model", 25),
        ("routes[2].agent", 26),
        ("routes[3].agent", 0),
        ("upstreams.near.url", 0),
        ("port", 0),
    ],
)
def test_line_of_a_key(key: str, line: int) -> None:
    assert line_of(FILE, key) == line


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("[server]\nport = \n", 2),
        ("[server]\nport = 1\nprot = 2\n", 3),
        ("[server]\n\nport = 70000\n", 3),
        ('[upstreams.a]\nmodels = ["m"]\nurl = "ftp://a"\n', 3),
        ('[upstreams.a]\nurl = "http://a/v1"\n\nurll = 1\n', 4),
        ("# here\nmodel_aliases.fast = 3\n", 2),
        ('[server]\napi_keys = [\n"x"]\n', 2),
    ],
)
def test_line_of_an_error(text: str, line: int, tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    path.write_text(text)
    with pytest.raises(ConfigError) as caught:
        load(path, {}, {})
    assert error_line(caught.value, path) == line


def test_errors_without_a_setting_have_no_line(tmp_path: Path) -> None:
    assert error_line(ConfigError("nothing to serve"), tmp_path) == 0
    assert error_line(ConfigError("unknown setting 'a' - in the environment"), None) == 0


@pytest.mark.parametrize(
    ("report", "text"),
    [
        (
            ReloadReport("rejected", "c.toml", error="unknown setting 'x' - in c.toml", line=3),
            "'x' - in c.toml, line 3",
        ),
        (ReloadReport("rejected", "c.toml", error="wrong - at server.port", line=3), "server.port (c.toml, line 3)"),
        (ReloadReport("rejected", "c.toml", error="not TOML (at line 3, column 5)", line=3), "(at line 3, column 5)"),
        (ReloadReport("rejected", "c.toml", error="nothing to serve"), "nothing has changed: nothing to serve"),
        (ReloadReport("reloaded", changed=("a", "b"), need_restart=("c",)), "a, b; only a restart changes c"),
        (ReloadReport("unchanged"), "the configuration is unchanged"),
    ],
)
def test_report_names_the_line_once(report: ReloadReport, text: str) -> None:
    assert report.text().endswith(text)
