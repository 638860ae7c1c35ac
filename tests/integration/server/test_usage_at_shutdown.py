"""What a key has used just before the gateway ends is not forgotten."""

import signal
from pathlib import Path

import pytest

from support.gateway import CHAT, ask, running
from support.scripted_backend import in_thread, plain

HEADERS = {"authorization": "Bearer the-secret-of-alice"}


@pytest.mark.parametrize("workers", [1, 2])
def test_usage_of_last_second_is_written(workers: int, tmp_path: Path) -> None:
    config = tmp_path / "config.toml"
    config.write_text('[limits]\npath = "usage.sqlite"\n[keys.alice]\nsecret = "the-secret-of-alice"\n')
    config.chmod(0o600)
    with in_thread(plain) as url:
        arguments = ("--upstream", f"{url}/v1", "--config", str(config))
        settings = {"server.workers": workers, "embedded.enabled": "false"}
        with running(tmp_path, *arguments, settings=settings) as gateway, gateway.client() as client:
            assert client.post(CHAT, json=ask(CHAT, "Hi", model="m"), headers=HEADERS).status_code == 200
            gateway.process.send_signal(signal.SIGTERM)
            gateway.ended()
        with running(tmp_path, *arguments, settings=settings) as gateway, gateway.client() as client:
            usage = client.get("/v1/usage", headers=HEADERS).json()
    assert usage["usage"]["day"]["requests"] == 1
