"""Reloads of the settings of real gateways: running streams, failed reloads, unchanged servers, and all triggers."""

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx2
import pytest

from support.gateway import CHAT, MODEL, Gateway, run, running, until
from support.keep_alive_upstream import KeepAliveUpstream, upstream
from support.sampling import sample
from support.workers import Connection, connections
from support.workers import workers as processes

ADMIN = "/admin/reload"
WORKERS = pytest.mark.parametrize("workers", [1, 2], ids=str)
SOME_WORKERS = pytest.mark.parametrize("workers", sample([1, 2], 1, "reloads"), ids=str)


@pytest.fixture
def first() -> Iterator[KeepAliveUpstream]:
    with upstream("m") as made:
        yield made


@pytest.fixture
def second() -> Iterator[KeepAliveUpstream]:
    with upstream("other") as made:
        yield made


class Settings:
    """A settings file."""

    def __init__(self, folder: Path, **server: object) -> None:
        self.path = folder / "config.toml"
        self.server: dict[str, object] = {"reload": '"signal"', **server}

    def write(self, upstreams: dict[str, KeepAliveUpstream], more: str = "", **aliases: str) -> Path:
        lines = [
            "[server]",
            *(f"{key} = {value}" for key, value in self.server.items()),
            "[embedded]",
            "enabled = false",
        ]
        for name, each in upstreams.items():
            lines += [f"[upstreams.{name}]", f'url = "{each.url}"', "auto_probe = false", "max_retries = 0"]
        lines += ["[model_aliases]", *(f'{name} = "{model}"' for name, model in aliases.items()), more]
        new = self.path.with_suffix(".new")
        new.write_text("\n".join(lines))
        new.replace(self.path)
        return self.path


def settings_of(tmp_path: Path, workers: int, **server: object) -> Settings:
    return Settings(tmp_path, workers=workers, graceful_shutdown_s=60, **server)


def serving(tmp_path: Path, path: Path, workers: int) -> Any:
    return running(tmp_path, "--config", str(path), settings={"embedded.enabled": "false", "server.workers": workers})


def ask(gateway: Gateway, model: str, **headers: str) -> httpx2.Response:
    return gateway.post(CHAT, {"model": model, "messages": [{"role": "user", "content": "Hi"}]}, **headers)


def reload(gateway: Gateway, **headers: str) -> dict[str, Any]:
    answer: dict[str, Any] = gateway.post(ADMIN, b"", **headers).json()
    return answer


@WORKERS
def test_running_streams_survive_removal_of_their_upstream(
    workers: int, first: KeepAliveUpstream, second: KeepAliveUpstream, tmp_path: Path
) -> None:
    settings = settings_of(tmp_path, workers)
    with serving(tmp_path, settings.write({"a": first}, alias="m"), workers) as gateway:
        with connections(gateway, 200, model="alias") as opened:
            for each in opened:
                each.begin_stream()
            settings.write({"b": second}, alias="other")
            report = reload(gateway)
            assert report["changed"] == ["upstreams.a (removed)", "upstreams.b (new)", "model_aliases.alias"]
            assert ask(gateway, "alias").json()["choices"][0]["message"]["content"] == "other"
            assert ask(gateway, "m").status_code == 404
            assert first.streaming == 200
            first.go.set()
            for each in opened:
                assert each.rest_of_stream().count(b"ends") == 1
        until(lambda: first.open == 0, "no connection to the removed server")
        assert not gateway.problems


@WORKERS
def test_no_request_fails_during_reloads(
    workers: int, first: KeepAliveUpstream, second: KeepAliveUpstream, tmp_path: Path
) -> None:
    settings = settings_of(tmp_path, workers)
    statuses: list[int] = []

    def client(gateway: Gateway) -> None:
        body = {"model": "alias", "messages": [{"role": "user", "content": "Hi"}]}
        with gateway.client() as own:
            for _ in range(100):
                statuses.append(own.post(CHAT, json=body).status_code)

    with serving(tmp_path, settings.write({"a": first}, alias="m"), workers) as gateway:
        threads = [threading.Thread(target=client, args=(gateway,)) for _ in range(10)]
        for each in threads:
            each.start()
        for number in range(20):
            settings.server["max_body_bytes"] = 100_000 + number
            changed = {"b": second} if number % 2 else {"a": first}
            settings.write(changed, alias="other" if number % 2 else "m")
            assert reload(gateway)["result"] == "reloaded"
        for each in threads:
            each.join()
        assert statuses == [200] * 1000
        assert not gateway.problems


@SOME_WORKERS
def test_wrong_settings_change_nothing(
    workers: int, first: KeepAliveUpstream, second: KeepAliveUpstream, tmp_path: Path
) -> None:
    settings = settings_of(tmp_path, workers)
    c = f'[upstreams.c]\nurl = "{second.url}"\n'
    with serving(tmp_path, settings.write({"a": first}, alias="m"), workers) as gateway:
        for more, error, line in [
            ("=", "Invalid statement", 13),
            ("x = 1", "expected the name of a model, or a list of names, got 1 - at model_aliases.x", 13),
            ('wrong = "nothing"', "no backend serves 'nothing'; served: 'a/m', 'm' - at model_aliases.wrong", 13),
            ("[serve]\nport = 1", "unknown setting 'serve.port'; did you mean 'server.port'?", 14),
            (f'{c}api_key_env = "NOT_SET"', "expected a key in the variable NOT_SET", 15),
            (f'{c}api = "other"', "at upstreams.c.api", 15),
        ]:
            path = settings.write({"a": first}, more, alias="m")
            with gateway.client() as client:
                response = client.post(ADMIN)
            report = response.json()
            assert (response.status_code, report["result"]) == (422, "rejected")
            assert error in report["error"]
            assert (report["file"], report.get("line")) == (str(path), line)
            assert ask(gateway, "alias").status_code == 200
        assert second.open == 0
        assert sum("was not reloaded" in line for line in gateway.problems) == 6
        settings.write({"a": first}, alias="m")
        assert reload(gateway)["result"] == "unchanged"
        assert 'dragoman_config_reloads_total{result="rejected"} 6.0' in metrics(gateway)


def metrics(gateway: Gateway) -> str:
    with gateway.client() as client:
        return client.get("/metrics").text


def test_unchanged_upstream_keeps_connection_and_breaker(
    first: KeepAliveUpstream, second: KeepAliveUpstream, tmp_path: Path
) -> None:
    settings = settings_of(tmp_path, 1)
    with serving(tmp_path, settings.write({"a": first}, alias="m"), 1) as gateway:
        assert ask(gateway, "m").status_code == 200
        accepted, requests = first.accepted, len(first.requests)
        for number in range(3):
            settings.write({"b": second, "a": first}, alias="other" if number % 2 else "m")
            assert reload(gateway)["result"] == "reloaded"
            assert ask(gateway, "m").status_code == 200
        assert (first.accepted, len(first.requests)) == (accepted, requests + 3)
        first.fails = True
        until(lambda: ask(gateway, "m").status_code == 503, "an open circuit breaker")
        settings.write({"a": first})
        assert reload(gateway)["changed"] == ["upstreams.b (removed)", "model_aliases.alias (removed)"]
        assert breaker(gateway) == "open"
        settings.write({"a": first}, "[guard]\nenabled = false")
        assert reload(gateway)["changed"] == ["guard.enabled"]
        assert breaker(gateway) == "open"
        assert 'backend_up{backend="b"}' not in metrics(gateway)


def breaker(gateway: Gateway) -> str:
    return str(gateway.state()["breaker"])


@WORKERS
def test_sighup_reloads(workers: int, first: KeepAliveUpstream, tmp_path: Path) -> None:
    settings = settings_of(tmp_path, workers)
    with serving(tmp_path, settings.write({"a": first}), workers) as gateway:
        settings.write({"a": first}, alias="m")
        gateway.process.send_signal(signal.SIGHUP)
        gateway.line("SIGHUP: the configuration was reloaded: model_aliases.alias (new)")
        assert [ask(gateway, "alias").status_code for _ in range(8)] == [200] * 8


@SOME_WORKERS
def test_changed_file_is_reloaded(workers: int, first: KeepAliveUpstream, tmp_path: Path) -> None:
    settings = settings_of(tmp_path, workers, reload='"watch"')
    with serving(tmp_path, settings.write({"a": first}), workers) as gateway:
        settings.write({"a": first}, alias="m")
        gateway.line("the settings file has changed: the configuration was reloaded: model_aliases.alias (new)")
        assert [ask(gateway, "alias").status_code for _ in range(8)] == [200] * 8


def test_reload_can_be_off(first: KeepAliveUpstream, tmp_path: Path) -> None:
    settings = settings_of(tmp_path, 1, reload='"off"')
    with serving(tmp_path, settings.write({"a": first}), 1) as gateway:
        settings.write({"a": first}, alias="m")
        gateway.process.send_signal(signal.SIGHUP)
        gateway.line('SIGHUP: the configuration was not reloaded, as server.reload is "off"')
        assert gateway.post(ADMIN, b"").status_code == 404
        assert ask(gateway, "alias").status_code == 404


@SOME_WORKERS
def test_settings_that_need_a_restart_are_named(workers: int, first: KeepAliveUpstream, tmp_path: Path) -> None:
    settings = settings_of(tmp_path, workers)
    with serving(tmp_path, settings.write({"a": first}), workers) as gateway:
        settings.server["max_connections"] = 5
        settings.server["metrics"] = "false"
        settings.write({"a": first})
        report = reload(gateway)
        assert report["result"] == "unchanged"
        assert report["need_restart"] == ["server.max_connections", "server.metrics"]
        gateway.line("only a restart changes server.max_connections, server.metrics")


@SOME_WORKERS
def test_only_clients_with_a_key_may_reload(workers: int, first: KeepAliveUpstream, tmp_path: Path) -> None:
    settings = settings_of(tmp_path, workers, api_keys='["first-secret"]')
    with serving(tmp_path, settings.write({"a": first}), workers) as gateway:
        assert gateway.post(ADMIN, b"").status_code == 401
        foreign = {"authorization": "Bearer first-secret", "origin": "https://evil.example"}
        assert gateway.post(ADMIN, b"", **foreign).status_code == 403
        settings.server["api_keys"] = '["other-secret"]'
        settings.write({"a": first})
        report = reload(gateway, authorization="Bearer first-secret")
        assert report["changed"] == ["server.api_keys"]
        assert "-secret" not in str(report) + str(gateway.lines)
        with gateway.client(authorization="Bearer other-secret") as client:
            assert client.get(ADMIN).status_code == 405
        assert [gateway.post(ADMIN, b"", authorization="Bearer first-secret").status_code for _ in range(8)] == [
            401
        ] * 8
        assert ask(gateway, "m", authorization="Bearer other-secret").status_code == 200
        settings.server["api_keys"] = "[]"
        settings.server["allowed_hosts"] = '["gateway.example.com"]'
        settings.write({"a": first})
        assert reload(gateway, authorization="Bearer other-secret")["result"] == "reloaded"
        answer = gateway.post(ADMIN, b"")
        assert answer.status_code == 403
        assert "set server.api_keys" in answer.text


def test_keys_of_a_reachable_gateway_cannot_be_removed(first: KeepAliveUpstream, tmp_path: Path) -> None:
    """The file no longer names the address, but the gateway still listens there."""
    settings = settings_of(tmp_path, 1, host='"0.0.0.0"', api_keys='["first-secret"]')
    with serving(tmp_path, settings.write({"a": first}), 1) as gateway:
        del settings.server["host"], settings.server["api_keys"]
        settings.write({"a": first})
        report = reload(gateway, authorization="Bearer first-secret")
        assert report["result"] == "rejected"
        assert "only a restart changes server.host" in report["error"]
        assert ask(gateway, "m").status_code == 401


def test_worker_that_starts_during_reload_gets_new_settings(first: KeepAliveUpstream, tmp_path: Path) -> None:
    settings = settings_of(tmp_path, 2)
    with serving(tmp_path, settings.write({"a": first}), 2) as gateway:
        with closing(Connection(gateway)) as connection:
            killed = connection.worker()
        settings.write({"a": first}, alias="m")
        os.kill(killed, signal.SIGKILL)
        gateway.process.send_signal(signal.SIGHUP)
        gateway.line("the configuration was reloaded")
        until(lambda: len(processes(gateway) - {killed}) == 2, "two workers")
        until(lambda: all(ask(gateway, "alias").status_code == 200 for _ in range(8)), "new settings in both")


def test_deleted_file_changes_nothing(first: KeepAliveUpstream, tmp_path: Path) -> None:
    settings = settings_of(tmp_path, 1)
    with serving(tmp_path, settings.write({"a": first}), 1) as gateway:
        settings.path.unlink()
        assert "No such file" in reload(gateway)["error"]
        assert ask(gateway, "m").status_code == 200


def test_mode_is_checked(tmp_path: Path) -> None:
    result = run(tmp_path, "serve", "--print-config", DRAGOMAN_SERVER_RELOAD="wach")
    assert result.returncode == 2
    assert "unknown 'wach'; did you mean 'watch'? expected 'watch', 'signal', 'off' - at server.reload" in result.stderr


def test_embedded_model_keeps_running(first: KeepAliveUpstream, tmp_path: Path) -> None:
    config = tmp_path / "config.toml"
    config.write_text('[server]\nreload = "signal"\n')
    with running(tmp_path, "--config", str(config)) as gateway:
        engine = gateway.engine()
        config.write_text(
            f'[server]\nreload = "signal"\n[embedded]\nmax_queue = 3\n[upstreams.a]\nurl = "{first.url}"\n'
        )
        report = reload(gateway)
        assert report["changed"] == ["upstreams.a (new)"]
        assert report["need_restart"] == ["embedded.max_queue"]
        assert ask(gateway, "m").status_code == 200
        assert ask(gateway, MODEL).status_code == 200
        assert gateway.engine() == engine
