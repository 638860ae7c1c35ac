"""Real gateway processes write their records to the user's state folder."""

from pathlib import Path

import pytest
from sqlalchemy import text

from dragoman.records.database import locate, open_for_reading
from support.gateway import CHAT, running
from support.scripted_backend import body, in_thread, plain

SETTINGS = {"embedded.enabled": "false"}


def file_of(home: Path) -> Path:
    return home / ".local" / "state" / "dragoman" / "records.sqlite"


def count(path: Path) -> int:
    with open_for_reading(locate(f"sqlite:///{path}")).begin() as connection:
        return int(connection.execute(text("SELECT count(*) FROM exchanges")).scalar_one())


@pytest.mark.parametrize("workers", [1, 2])
def test_records_are_complete_after_the_end(workers: int, tmp_path: Path) -> None:
    settings = {**SETTINGS, "server.workers": workers}
    with in_thread(plain) as url, running(tmp_path, "--upstream", f"{url}/v1", settings=settings) as gateway:
        answers = [gateway.post(CHAT, body()) for _ in range(12)]
        assert gateway.stop() == 0
    assert {answer.status_code for answer in answers} == {200}
    assert count(file_of(tmp_path)) == 12
    assert not gateway.problems


def test_records_can_be_off(tmp_path: Path) -> None:
    settings = {**SETTINGS, "records.enabled": "false"}
    with in_thread(plain) as url, running(tmp_path, "--upstream", f"{url}/v1", settings=settings) as gateway:
        assert gateway.post(CHAT, body()).status_code == 200
        assert gateway.stop() == 0
    assert not file_of(tmp_path).exists()


def test_unusable_folder_is_reported_and_requests_are_answered(tmp_path: Path) -> None:
    (tmp_path / ".local").write_text("a file")
    with in_thread(plain) as url, running(tmp_path, "--upstream", f"{url}/v1", settings=SETTINGS) as gateway:
        assert gateway.post(CHAT, body()).status_code == 200
        assert "requests are not affected" in gateway.line("records cannot be written to ")
        assert gateway.post(CHAT, body()).status_code == 200
        assert gateway.stop() == 0
