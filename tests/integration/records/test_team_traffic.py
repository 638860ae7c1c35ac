"""Two days of a team through a real gateway: the report names the model and the tool that are bad."""

import json
from pathlib import Path

import pytest

from dragoman import cli
from support.team_traffic import AGENTS, BAD_MODEL, BAD_TOOL, MODELS, simulate

START_S = 20_000 * 86_400.0
"""2024-10-04, 00:00 UTC."""
ALL = ("--since", "2024-10-04", "--until", "2024-10-06")


@pytest.mark.parametrize("exchanges", [240, pytest.param(4000, marks=pytest.mark.every)])
async def test_report_names_bad_model_and_tool(
    exchanges: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    url = f"sqlite:///{tmp_path}/records.sqlite"
    await simulate(url, exchanges, START_S)

    def report(*options: str) -> str:
        assert cli.main(["report", "--records", url, *ALL, *options]) == 0
        return capsys.readouterr().out

    found = json.loads(report("--by", "day,model,upstream,agent", "--json"))
    (table,) = found["tables"]
    assert sum(row["exchanges"] for row in table["rows"]) == exchanges
    assert sum(row["calls"] for row in table["rows"]) == exchanges
    assert {row["day"] for row in table["rows"]} == {"2024-10-04", "2024-10-05"}
    assert {(row["model"], row["upstream"]) for row in table["rows"]} == set(MODELS.items())
    assert {row["agent"] for row in table["rows"]} == {agent.name for agent in AGENTS}
    assert all(row["failed"] == 0 for row in table["rows"] if row["model"] != BAD_MODEL)
    assert found["worst"]["model"]["name"] == BAD_MODEL
    assert found["worst"]["tool"]["name"] == BAD_TOOL
    assert 0 < found["worst"]["model"]["failed_share"] < found["worst"]["tool"]["failed_share"]
    text = report()
    assert f"Worst model: {BAD_MODEL}: " in text
    assert f"Its worst tool: {BAD_TOOL}: " in text
