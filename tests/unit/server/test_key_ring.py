"""The ring of named API keys."""

import hashlib
import logging
import os
from collections.abc import Mapping
from pathlib import Path

import pytest

from dragoman.config.keys import KeyConfig, PreviousSecret
from dragoman.core.errors import AuthError, ConfigError
from dragoman.server.keys.key import UNNAMED
from dragoman.server.keys.ring import KeyRing, KeysFile

NOON = 1_800_000_000.0


def sha256(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()


def ring(**keys: KeyConfig) -> KeyRing:
    return KeyRing(keys, ("unnamed-secret",), environ={"BOB": "bobs-secret"}, clock=lambda: NOON)


@pytest.mark.parametrize("header", ["authorization", "x-api-key", "api-key"])
def test_key_is_found_by_its_secret_in_each_header(header: str) -> None:
    keys = ring(alice=KeyConfig(sha256=sha256("alices-secret")), bob=KeyConfig(secret_env="BOB"))
    prefix = "bearer " if header == "authorization" else ""
    assert keys.authenticate({header: f"{prefix}alices-secret"}).name == "alice"
    assert keys.authenticate({header: f"{prefix}bobs-secret"}).name == "bob"
    unnamed = keys.authenticate({header: f"{prefix}unnamed-secret"})
    assert (unnamed.name, unnamed.config) == ("", UNNAMED.config)
    assert unnamed.client.secret_id not in ("", sha256("unnamed-secret"))


def test_key_is_found_next_to_another_key_of_the_client() -> None:
    keys = ring(alice=KeyConfig(sha256=sha256("alices-secret")))
    assert keys.authenticate({"authorization": "Bearer other", "x-api-key": "alices-secret"}).name == "alice"


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (KeyConfig(sha256=sha256("another one")), "expected an API key in 'Authorization: Bearer …' or 'x-api-key'"),
        (KeyConfig(secret="the-secret", expires="2020-01-01"), "the API key alice expired (2020-01-01)"),
        (KeyConfig(secret="the-secret", revoked="2020-01-01"), "the API key alice was revoked"),
        (
            KeyConfig(secret="new-secret", previous=(PreviousSecret(sha256("the-secret"), "2020-01-01"),)),
            "this secret of the API key alice was replaced; use the new one",
        ),
    ],
)
def test_unknown_expired_revoked_and_replaced_secrets_are_refused(config: KeyConfig, message: str) -> None:
    with pytest.raises(AuthError) as error:
        ring(alice=config).authenticate({"x-api-key": "the-secret"})
    assert str(error.value).startswith(message)
    assert "the-secret" not in str(error.value)


def test_both_secrets_are_accepted_within_the_grace_time() -> None:
    previous = (PreviousSecret(sha256("old-secret"), "2030-01-01"),)
    keys = ring(alice=KeyConfig(secret="new-secret", previous=previous))
    assert [keys.authenticate({"x-api-key": key}).name for key in ("old-secret", "new-secret")] == ["alice", "alice"]


def test_two_keys_with_one_secret_are_rejected() -> None:
    with pytest.raises(ConfigError, match=r"got that of keys.alice - at keys.bob"):
        ring(alice=KeyConfig(secret="bobs-secret"), bob=KeyConfig(secret_env="BOB"))
    with pytest.raises(ConfigError, match=r"got that of server.api_keys - at keys.alice"):
        ring(alice=KeyConfig(secret="unnamed-secret"))


def test_no_key_is_needed_without_keys() -> None:
    keys = KeyRing({}, file=KeysFile(Path("/absent/keys.toml"), pytest.fail))
    assert not keys.is_on
    assert keys.authenticate({}) is UNNAMED


class Files:
    """A keys file whose content is a name of a key."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.reads = 0

    def write(self, name: str) -> None:
        new = self.path.with_suffix(".new")
        new.write_text(name)
        new.replace(self.path)

    def read(self, path: Path) -> Mapping[str, KeyConfig]:
        self.reads += 1
        if not (name := path.read_text()):
            raise ConfigError("the file is wrong")
        return {name: KeyConfig(secret=f"{name}-secret")}


def test_keys_file_is_read_again_only_when_it_has_changed(tmp_path: Path) -> None:
    file = Files(tmp_path / "keys.toml")
    file.write("alice")
    keys = KeyRing({}, file=KeysFile(file.path, file.read))
    for _ in range(3):
        assert keys.authenticate({"x-api-key": "alice-secret"}).name == "alice"
    assert file.reads == 1
    file.write("bob")
    assert keys.find({"x-api-key": "alice-secret"}) is None
    assert keys.authenticate({"x-api-key": "bob-secret"}).name == "bob"
    assert file.reads == 2


def test_wrong_keys_file_changes_nothing_and_is_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    file = Files(tmp_path / "keys.toml")
    file.write("alice")
    keys = KeyRing({}, file=KeysFile(file.path, file.read))
    file.write("")
    with caplog.at_level(logging.ERROR):
        assert keys.authenticate({"x-api-key": "alice-secret"}).name == "alice"
    assert caplog.messages == ["the file is wrong; the keys stay as they were"]


def test_deleted_keys_file_admits_no_one(tmp_path: Path) -> None:
    file = Files(tmp_path / "keys.toml")
    file.write("alice")
    keys = KeyRing({}, file=KeysFile(file.path, file.read))
    file.path.unlink()
    assert keys.is_on
    assert keys.find({"x-api-key": "alice-secret"}) is None
    assert keys.find({}) is None


def test_key_of_the_file_must_not_be_in_the_settings(tmp_path: Path) -> None:
    file = Files(tmp_path / "keys.toml")
    file.write("alice")
    with pytest.raises(ConfigError, match=r"expected keys.alice in one file"):
        KeyRing({"alice": KeyConfig(secret="other-secret")}, file=KeysFile(file.path, file.read))
    assert os.path.exists(file.path)


def test_named_keys_are_listed_with_their_origin_as_the_file_is_now(tmp_path: Path) -> None:
    file = Files(tmp_path / "keys.toml")
    file.write("alice")
    settings = {"old": KeyConfig(sha256=sha256("old"), revoked="2020-01-01")}
    keys = KeyRing(settings, ("unnamed-secret",), KeysFile(file.path, file.read))
    assert [(each.key.name, each.is_in_file) for each in keys.named()] == [("old", False), ("alice", True)]
    file.write("robert")
    assert [each.key.name for each in keys.named()] == ["old", "robert"]
    assert keys.unnamed_count == 1
