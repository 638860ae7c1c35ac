"""Edits of the keys file."""

import hashlib
import os
import stat
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from dragoman.cli.keys.edit import KeysEditor
from dragoman.config.keys import KeyConfig, PreviousSecret
from dragoman.config.keys_file import read_keys
from dragoman.core.errors import ConfigError

NOON = datetime(2027, 1, 31, 12, tzinfo=UTC)


def sha256(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "new folder" / "keys.toml"


def editor(path: Path, now: datetime = NOON) -> KeysEditor:
    return KeysEditor(path, {}, now)


def test_created_key_stores_only_the_digest_of_its_secret(path: Path) -> None:
    secret = editor(path).create("alice", {"models": ["qwen*"], "budget_usd_per_day": 2.5})
    assert secret.startswith("sk-dragoman-")
    assert len(secret) == len("sk-dragoman-") + 43
    assert secret not in path.read_text()
    expected = KeyConfig(sha256=sha256(secret), models=("qwen*",), budget_usd_per_day=2.5)
    assert read_keys(path, {}) == {"alice": expected}


def test_file_is_private_and_no_other_file_is_left(path: Path) -> None:
    editor(path).create("alice", {})
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    path.chmod(0o640)
    editor(path).create("bob", {})
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    assert [each.name for each in path.parent.iterdir()] == ["keys.toml"]


def test_comments_and_other_keys_stay(path: Path) -> None:
    editor(path).create("alice", {})
    text = path.read_text() + '\n# the build server\n[keys.ci]\nsha256 = "' + "ab" * 32 + '"  # its own\nadmin = true\n'
    path.write_text(text)
    editor(path).create("bob", {})
    editor(path).rotate("alice", timedelta(hours=1))
    editor(path).rotate("ci", timedelta(hours=1))
    editor(path).revoke("bob")
    written = path.read_text()
    assert "# the build server\n[keys.ci]\n" in written
    keys = read_keys(path, {})
    assert list(keys) == ["alice", "ci", "bob"]
    assert keys["ci"].admin


@pytest.mark.parametrize(
    ("table", "expected"),
    [
        ("[keys.ci]  # builds\n# its own\nsha256 = 'x'\n", "[keys.ci]  # builds\nsha256 = {new}\n# its own\n"),
        (
            "[ keys . 'ci' ]\nsha256 = 'x'\nmodels = [\n  'a', # one\n  'b',\n]\n",
            "[ keys . 'ci' ]\nsha256 = {new}\nmodels = [\n  'a', # one\n  'b',\n]\n",
        ),
        (
            "[keys.ci]\nprevious = [\n  {{ sha256 = 'x', expires = '2020-01-01' }},\n]\nsha256 = 'x'\n\n[keys.d]\n",
            "[keys.ci]\nsha256 = {new}\n\n[keys.d]\n",
        ),
    ],
)
def test_lines_of_any_form_are_changed(table: str, expected: str, path: Path) -> None:
    path.parent.mkdir()
    digest = "ab" * 32
    rest = f"sha256 = '{'cd' * 32}'\n"
    path.write_text(table.replace("'x'", f"'{digest}'").format() + (rest if "[keys.d]" in table else ""))
    secret = editor(path).rotate("ci", timedelta(0))
    assert path.read_text() == expected.format(new=f'"{sha256(secret)}"') + (rest if "[keys.d]" in table else "")


def test_table_of_another_form_is_left_to_its_author(path: Path) -> None:
    path.parent.mkdir()
    text = f"[keys]\nci = {{ sha256 = '{'ab' * 32}' }}\n"
    path.write_text(text)
    with pytest.raises(ConfigError, match=r"expected lines of its own after \[keys.ci\], got another form: edit "):
        editor(path).revoke("ci")
    assert path.read_text() == text


def test_rotated_key_keeps_its_old_secrets_for_the_grace_time(path: Path) -> None:
    first = editor(path).create("alice", {"models": ["m"]})
    second = editor(path).rotate("alice", timedelta(hours=1))
    third = editor(path, NOON + timedelta(minutes=30)).rotate("alice", timedelta(hours=1))
    assert read_keys(path, {})["alice"] == KeyConfig(
        sha256=sha256(third),
        previous=(
            PreviousSecret(sha256(first), "2027-01-31T13:00:00+00:00"),
            PreviousSecret(sha256(second), "2027-01-31T13:30:00+00:00"),
        ),
        models=("m",),
    )
    fourth = editor(path, NOON + timedelta(hours=2)).rotate("alice", timedelta(0))
    assert read_keys(path, {})["alice"] == KeyConfig(sha256=sha256(fourth), models=("m",))


def test_secrets_written_by_hand_are_replaced_by_digests(path: Path) -> None:
    path.parent.mkdir()
    path.write_text('[keys.alice]\nsecret = "by-hand"\n')
    editor(path).rotate("alice", timedelta(hours=1))
    assert "by-hand" not in path.read_text()
    assert read_keys(path, {})["alice"].previous[0].sha256 == sha256("by-hand")


def test_revoked_key_keeps_its_name(path: Path) -> None:
    editor(path).create("alice", {})
    editor(path).rotate("alice", timedelta(hours=1))
    editor(path).revoke("alice")
    key = read_keys(path, {})["alice"]
    assert (key.revoked, key.previous) == ("2027-01-31T12:00:00+00:00", ())
    editor(path, NOON + timedelta(hours=1)).revoke("alice")
    assert read_keys(path, {})["alice"].revoked == key.revoked, "the first time counts"
    for change in (lambda: editor(path).create("alice", {}), lambda: editor(path).rotate("alice", timedelta(0))):
        with pytest.raises(ConfigError, match="the key alice was revoked"):
            change()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda it: it.create("alice", {}), "the key alice exists: choose another name - at keys.alice, from {path}"),
        (
            lambda it: it.create("a]\n[server", {}),
            "expected a name of at most 64 letters, digits, '-' and '_' that starts with a letter or a digit, "
            "got 'a]\\n[server' - at keys",
        ),
        (lambda it: it.revoke("alise"), "there is no key alise; did you mean 'alice'? - in {path}"),
        (
            lambda it: it.create("bob", {"expires": "soon"}),
            "expected a date such as 2027-01-31 or a time such as 2027-01-31T18:00:00Z, got 'soon' - "
            "at keys.bob.expires, from {path}",
        ),
        (
            lambda it: it.create("bob", {"max_concurrency": -1}),
            "expected a whole number of at least 0, got -1 - at keys.bob.max_concurrency, from {path}",
        ),
    ],
)
def test_wrong_change_is_an_error_and_changes_nothing(change: "object", message: str, path: Path) -> None:
    editor(path).create("alice", {})
    before = path.read_bytes()
    assert callable(change)
    with pytest.raises(ConfigError) as error:
        change(editor(path))
    assert str(error.value) == message.format(path=path)
    assert path.read_bytes() == before
    assert [each.name for each in path.parent.iterdir()] == ["keys.toml"]


def test_link_stays_a_link(path: Path, tmp_path: Path) -> None:
    link = tmp_path / "keys.toml"
    editor(path).create("alice", {})
    link.symlink_to(path)
    editor(link).create("bob", {})
    assert link.is_symlink()
    assert list(read_keys(path, {})) == ["alice", "bob"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[keys.alice", "{path} is not TOML: Expected ']' at the end of a table declaration (at end of document)"),
        ("[server]\nport = 1\n", "expected only tables [keys.NAME] in a keys file, got 'server' - in {path}"),
        ("keys = 3", "expected tables [keys.NAME], got keys = 3 - in {path}"),
        ("keys.alice = 3", "expected a table, [keys.alice], got another value - at keys.alice, from {path}"),
        (
            "[keys.alice]\nmodel = 'm'",
            "unknown setting 'keys.alice.model'; did you mean 'models'? - in {path}",
        ),
        (
            "[keys.alice]\nmodels = 'qwen*'",
            'expected a list, got "qwen*" - at keys.alice.models, from {path}; write models = ["…", "…"]',
        ),
        ("[keys.alice]\nsecret = 123456", "expected text, got what is not shown - at keys.alice.secret, from {path}"),
        (
            "[keys.alice]\nprevious = [{sha256 = 3}]",
            "Expected `str`, got `int` - at `keys.alice.previous[0].sha256`, from {path}",
        ),
    ],
)
def test_wrong_keys_file_is_an_error_with_its_place(text: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "keys.toml"
    path.write_text(text)
    with pytest.raises(ConfigError) as error:
        read_keys(path, {})
    assert str(error.value) == message.format(path=path)


def test_dates_of_toml_are_read(tmp_path: Path) -> None:
    path = tmp_path / "keys.toml"
    path.write_text(
        "[keys.a]\nsecret = 'by-hand'\nexpires = 2027-01-31\n[keys.b]\nsecret='by hand'\nexpires=2027-01-31T12:00:00Z"
    )
    expires = [key.expires for key in read_keys(path, {}).values()]
    assert expires == ["2027-01-31", "2027-01-31T12:00:00+00:00"]


@pytest.mark.skipif(os.name == "nt" or os.geteuid() == 0, reason="root may write anywhere")
def test_folder_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(ConfigError, match=r"cannot write the keys file .*: permission denied"):
        editor(tmp_path / "keys.toml").create("alice", {})
