"""Reports over time, and keys with their use, as the page reads them."""

import time
from pathlib import Path
from typing import Any

from dragoman.compose.limits import usage_limits
from dragoman.config import Config
from dragoman.config.keys import KeyConfig
from dragoman.records.config import RecordsConfig
from dragoman.records.record import CallKind, ExchangeRecord, Series
from dragoman.server.keys.ring import KeyRing
from dragoman.usage_limits.config import LimitsConfig
from support.console import served_console
from support.gateway import CHAT
from support.sample_records import fill
from support.scripted_backend import body, plain

ADMIN, USER = "secret-of-admin", "secret-of-user"


def record(age_s: float, model: str, outcome: str = "valid", count: int = 1, error: str = "") -> ExchangeRecord:
    ended_s = time.time() - age_s
    series = Series(upstream_model=model, agent="codex", status=502 if error else 200, error=error)
    calls = [(CallKind("get_weather", outcome), count)] if count else []
    numbers = {"input_tokens": 100, "cached_tokens": 40, "output_tokens": 10, "cost_usd": 0.5}
    id = f"{round(ended_s * 1e6):024x}"
    return ExchangeRecord(ended_s=ended_s, id=id, series=series, calls=calls, first_ms=100, total_ms=900, **numbers)


async def report_of(url: str, query: str = "") -> Any:
    async with served_console(plain, records=RecordsConfig(url=url)) as console:
        answer = await console.get(f"/reports{query}")
        assert answer.status_code == 200, answer.text
        return answer.json()


async def test_a_report_has_totals_points_and_what_fails(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/records.sqlite"
    bad = [record(60, "bad", "invalid", 40), record(61, "bad", count=0, error="UpstreamError")]
    fill(url, [record(3 * 86_400, "good", count=100), record(2 * 86_400, "good", "repaired", 3), *bad])
    report = await report_of(url)
    assert (report["by"], report["step_s"], len(report["times"]), report["notes"]) == ("model", 86_400, 7, [])
    assert report["total"]["totals"]["exchanges"] == [4]
    assert report["total"]["totals"]["cost_usd"] == [2.0]
    good, second = sorted(report["series"], key=lambda series: series["name"], reverse=True)
    assert good["totals"] | {"valid": [100], "repaired": [3], "failed": [0]} == good["totals"]
    assert sum(good["points"]["valid"]) == 100
    assert [good["points"][name].index(count) for name, count in (("valid", 100), ("repaired", 3))] in ([3, 4], [2, 3])
    assert second["totals"] | {"errors": [1], "invalid": [40], "calls": [40], "first_p95_ms": [98]} == second["totals"]
    assert second["points"]["total_p50_ms"][0] is None
    worst = report["worst"][0]
    assert (worst["kind"], worst["name"], worst["failed"], worst["failed_share_of_others"]) == ("model", "bad", 40, 0)
    assert worst["text"] == (
        "Worst model: bad: 40 of 40 calls failed (100.0 %); other models: 0 of 103 calls failed (0.0 %)."
    )
    assert "Fisher" in report["rule"]


async def test_hours_filters_and_tools(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/records.sqlite"
    fill(url, [record(0, "a"), record(3_600, "b", "unknown", 2), record(30 * 3_600, "c")])
    report = await report_of(url, "?by=tool&days=1&model=%3F&agent=codex")
    assert (report["step_s"], len(report["times"]), report["labels"]) == (3_600, 24, ["get_weather"])
    (tool,) = report["series"]
    assert [count for count in tool["points"]["calls"] if count] == [2, 1]
    assert (tool["totals"]["unknown"], tool["totals"]["exchanges"], report["total"]["totals"]["exchanges"]) == (
        [2],
        [0],
        [2],
    )
    assert report["notes"] == ["Tokens, cost and times belong to no single tool; only the total has them."]
    assert (await report_of(url, "?days=1&model=a"))["total"]["totals"]["exchanges"] == [1]


async def test_without_records_there_is_a_note(tmp_path: Path) -> None:
    report = await report_of(f"sqlite:///{tmp_path}/none.sqlite")
    assert (report["series"], report["notes"]) == ([], ["No exchange is recorded yet."])
    assert report["total"]["points"]["exchanges"] == [0] * 7
    async with served_console(plain) as console:
        assert (await console.get("/reports")).json()["notes"] == [
            "Exchanges are not recorded (setting records.enabled)."
        ]


async def test_wrong_questions_and_unreadable_records_are_errors(tmp_path: Path) -> None:
    broken = tmp_path / "records.sqlite"
    broken.write_bytes(b"no database" * 100)
    async with served_console(plain, records=RecordsConfig(url=f"sqlite:///{broken}")) as console:
        wrong = (await console.get("/reports?by=modle")).json()["error"]["message"]
        assert "got 'modle'; did you mean 'mode'? - at by" in wrong
        for days in ("0", "367", "-1", "²", "1e9", ""):
            answer = await console.get(f"/reports?days={days}")
            assert answer.status_code == 400, days
            assert "expected a number of days from 1 to 366" in answer.json()["error"]["message"]
        unreadable = await console.get("/reports")
        assert unreadable.status_code == 503
        assert "cannot read the records in" in unreadable.json()["error"]["message"]


async def test_keys_have_limits_and_use_but_no_secrets(tmp_path: Path) -> None:
    keys = {
        "boss": KeyConfig(secret=ADMIN, admin=True),
        "alice": KeyConfig(
            secret=USER, models=("n", "m"), budget_tokens_per_day=1_000, budget_usd_per_month=2.5, max_concurrency=4
        ),
        "old": KeyConfig(sha256="ab" * 32, expires="2020-01-01"),
    }
    limits = usage_limits(Config(limits=LimitsConfig(path=str(tmp_path / "usage.sqlite"))), None)
    async with served_console(plain, keys=KeyRing(keys, ["unnamed-secret"]), limits=limits) as console:
        await console.client.post(CHAT, json=body(), headers={"x-api-key": USER})
        answer = await console.get("/keys", authorization=f"Bearer {ADMIN}")
        await limits.close()
    assert not any(secret in answer.text for secret in (ADMIN, USER, "unnamed-secret", "ab" * 32))
    view = answer.json()
    assert (view["is_on"], view["unnamed"], view["error"]) == (True, 1, "")
    boss, alice, old = view["keys"]
    assert (boss["is_admin"], old["state"], alice["models"]) == (True, "expired", ["n", "m"])
    assert alice["day"]["requests"] == 1
    tokens = alice["day"]["input_tokens"] + alice["day"]["output_tokens"]
    money, budget = alice["budgets"]
    assert (money["name"], money["limit"], money["remaining"]) == ("budget_usd_per_month", 2.5, 2.5)
    assert (budget["unit"], budget["period"], budget["used"], budget["remaining"]) == (
        "tokens",
        "day",
        tokens,
        1_000 - tokens,
    )
    assert alice["limits"] == [{"name": "max_concurrency", "limit": 4, "remaining": 4, "reset_s": None}]


async def test_use_that_cannot_be_read_is_reported(tmp_path: Path) -> None:
    limits = usage_limits(Config(limits=LimitsConfig(path=str(tmp_path))), None)
    keys = KeyRing({"boss": KeyConfig(secret=ADMIN, admin=True)})
    async with served_console(plain, keys=keys, limits=limits) as console:
        view = (await console.get("/keys", authorization=f"Bearer {ADMIN}")).json()
    assert view["error"]
    assert view["keys"][0]["day"] is None
