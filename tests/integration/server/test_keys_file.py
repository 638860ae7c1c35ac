"""A keys file that `dragoman keys` changes while gateway processes run."""

import json
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from support.gateway import CHAT, Gateway, run, running, until
from support.http_client import blocking_http_client
from support.scripted_backend import in_thread, plain

ASKED = {"model": "m", "messages": [{"role": "user", "content": "Hello"}]}


@pytest.fixture(scope="module")
def upstream() -> Iterator[str]:
    with in_thread(plain) as url:
        yield f"{url}/v1"


def keys(home: Path, *args: str) -> str:
    """The output of the command, whose status is 0."""
    done = run(home, "keys", *args)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def ask(gateway: Gateway, secret: str) -> int:
    """The status of a request over a connection of its own."""
    return gateway.post(CHAT, ASKED, authorization=f"Bearer {secret}").status_code


def test_rotated_secrets_are_accepted_under_load_and_a_revoked_key_is_refused_at_once(
    tmp_path: Path, upstream: str
) -> None:
    old = keys(tmp_path, "create", "alice")
    rotated, stop = threading.Event(), threading.Event()
    with running(tmp_path, "--upstream", upstream, "--workers", "2") as gateway:

        def load(secret: str) -> list[int]:
            statuses = []
            with blocking_http_client(gateway.url, headers={"x-api-key": secret}) as client:
                while not (stop.is_set() and rotated.is_set()):
                    statuses.append(client.post(CHAT, json=ASKED).status_code)
            return statuses

        with ThreadPoolExecutor(4) as pool:
            loads = [pool.submit(load, old) for _ in range(3)]
            new = keys(tmp_path, "rotate", "alice", "--grace", "1h")
            rotated.set()
            statuses = [ask(gateway, secret) for _ in range(10) for secret in (old, new)]
            stop.set()
            for each in loads:
                statuses += each.result()
        assert set(statuses) == {200}
        assert len(statuses) > 30
        keys(tmp_path, "revoke", "alice")
        assert {ask(gateway, secret) for _ in range(10) for secret in (old, new)} == {401}
        records = gateway.records()
        assert {record["key"] for record in records if record["status"] == 200} == {"alice"}
        log = json.dumps(gateway.lines)
        assert old not in log
        assert new not in log


def test_first_key_closes_a_running_gateway(tmp_path: Path, upstream: str) -> None:
    with running(tmp_path, "--upstream", upstream) as gateway:
        assert ask(gateway, "any") == 200
        secret = keys(tmp_path, "create", "alice")
        until(lambda: ask(gateway, "any") == 401, "a refused request")
        assert ask(gateway, secret) == 200
        file = tmp_path / ".config/dragoman/keys.toml"
        file.write_text(f"{file.read_text()}\n[keys.bob]\nmodel = 1\n")
        assert ask(gateway, secret) == 200
        gateway.line("unknown setting 'keys.bob.model'; did you mean 'models'? - in ")
        file.unlink()
        assert ask(gateway, secret) == 401


def test_command_line_of_keys(tmp_path: Path) -> None:
    settings = tmp_path / "settings.toml"
    settings.write_text('[server]\nkeys_path = "our keys.toml"\n[keys.ci]\nsecret = "of-the-settings"\nadmin = true\n')
    config = ("--config", str(settings))
    created = run(tmp_path, "keys", "create", "alice", "--models", "qwen*, coder", "--expires", "2099-12-31", *config)
    file = tmp_path / "our keys.toml"
    assert created.stderr == f"dragoman: created the key alice in {file}; its secret is shown only now:\n"
    assert created.stdout.strip() not in file.read_text()
    rotated = json.loads(keys(tmp_path, "rotate", "alice", "--json", *config))
    assert rotated["name"] == "alice"
    listed = keys(tmp_path, "list", *config).splitlines()
    assert [" ".join(line.split()) for line in listed] == [
        "NAME STATE MODELS UPSTREAMS TOOLS LIMITS EXPIRES TODAY",
        "ci (admin) valid all all all none never unused",
        "alice valid qwen*, coder all all none 2099-12-31 unused",
    ]
    facts = {key["name"]: key for key in json.loads(keys(tmp_path, "--json", *config))}
    assert (facts["alice"]["replaced_secrets"], facts["ci"]["source"]) == (1, "settings")
    everything = json.dumps([listed, facts]) + run(tmp_path, "serve", "--print-config", "--all", *config).stdout
    for secret in ("of-the-settings", created.stdout.strip(), rotated["secret"]):
        assert secret not in everything
    keys(tmp_path, "revoke", "alice", *config)
    assert "revoked" in keys(tmp_path, "list", *config)


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (("rotate", "ci"), "the key ci is in the settings file: change it there - at keys.ci"),
        (("revoke", "alice"), "there is no key alice - in "),
        (("create", "a", "--expires", "soon"), "expected a date such as 2027-01-31 or a time such as"),
        (("rotate", "ci", "--grace", "1w"), "expected a duration such as 30m, 1h or 7d, got '1w' - at --grace"),
    ],
)
def test_wrong_commands_are_errors(args: tuple[str, ...], message: str, tmp_path: Path) -> None:
    settings = tmp_path / "settings.toml"
    settings.write_text('[keys.ci]\nsecret = "of-the-settings"\n')
    done = run(tmp_path, "keys", *args, "--config", str(settings))
    assert (done.returncode, done.stdout) == (2, "")
    assert message in " ".join(done.stderr.split())


def test_named_keys_file_must_exist(tmp_path: Path) -> None:
    settings = tmp_path / "settings.toml"
    settings.write_text('[server]\nkeys_path = "absent.toml"\n')
    done = run(tmp_path, "serve", "--print-config", "--config", str(settings))
    assert done.returncode == 2
    assert "expected a keys file, got none: `dragoman keys create NAME` creates" in " ".join(done.stderr.split())
