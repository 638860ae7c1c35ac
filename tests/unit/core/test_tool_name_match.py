"""Which offered tool a name from the model resolves to."""

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from dragoman.core import tool_name_match
from dragoman.core.tool_name_match import STEPS, NameMatch, ToolNames

TOOLS = ["get_weather", "set_alarm", "get_alarm", "mcp__files__read_file", "upload_report", "enable_lights", "Bash"]


@pytest.mark.parametrize(
    ("written", "name", "step"),
    [
        ("get_weather", "get_weather", ""),
        ("functions.get_weather", "get_weather", "match_prefix"),
        ("functions/Bash", "Bash", "match_prefix"),
        ("default_api:get_weather", "get_weather", "match_prefix"),
        ("mcp__weather__get_weather", "get_weather", "match_prefix"),
        ("read_file", "mcp__files__read_file", "match_prefix"),
        ("functions.read_file", "mcp__files__read_file", "match_prefix"),
        ("mcp__Files__readFile", "mcp__files__read_file", "match_case"),
        ("bash", "Bash", "match_case"),
        ("GetWeather", "get_weather", "match_case"),
        ("get-weather", "get_weather", "match_case"),
        ("functions.GET_WEATHER", "get_weather", "match_case"),
        ("get_weahter", "get_weather", "match_typo"),
        ("getWeahter", "get_weather", "match_typo"),
        ("functions.get_weahter", "get_weather", "match_typo"),
    ],
)
def test_similar_name_resolves_to_tool(written: str, name: str, step: str) -> None:
    assert ToolNames(TOOLS).resolve(written) == NameMatch(name, step)


@pytest.mark.parametrize(
    "written",
    ["", "let_alarm", "unload_report", "disable_lights", "weather", "get", "x" * 200, "functions.", "mcp__a__", "..."],
)
def test_unclear_name_is_not_resolved(written: str) -> None:
    assert ToolNames(TOOLS).resolve(written) is None


def test_ambiguous_name_is_not_resolved() -> None:
    assert ToolNames(["read_file", "readFile"]).resolve("ReadFile") is None
    assert ToolNames(["mcp__a__read", "mcp__b__read"]).resolve("read") is None
    assert ToolNames(["get_weather", "getWeather"]).resolve("get_weahter") is None
    assert ToolNames(["committed_one", "comitted_one"]).resolve("commited_one") == NameMatch(
        "committed_one", "match_typo"
    )
    assert ToolNames(["committed_one", "commtied_one"]).resolve("commited_one") is None


@pytest.mark.parametrize(
    ("written", "offered"),
    [
        ("charge_card", "change_card"),
        ("clone_issue", "close_issue"),
        ("remote_file", "remove_file"),
        ("delete_event", "delete_events"),
        ("delete_events", "delete_event"),
        ("create_contact", "create_contract"),
        ("create_contract", "create_contact"),
        ("unblock_door", "unlock_door"),
        ("unlock_door", "unblock_door"),
        ("get_wether", "get_weather"),
        ("serve_diner", "serve_dinner"),
        ("mark_filed", "mark_filled"),
        ("start_trial", "start_trail"),
        ("list_prefects", "list_perfects"),
        ("get_weatherr", "get_weather"),
        ("get_weathre", "get_weather"),
        ("wipe_host21", "wipe_host12"),
        ("wipe_server10", "wipe_server01"),
        ("wipe_server11", "wipe_server1"),
        ("gr_e_weahter", "größe_weather"),
        ("größe_weahter", "grüße_weather"),
        ("step_-1_weahter", "step_1_weather"),
        ("c++_weahter", "c_weather"),
        ("weahter_b_get", "weather_get"),
        ("mcp__staging__drop", "mcp__production__drop"),
        ("c", "c++"),
        ("step_1", "step_-1"),
        ("load_v15", "load_v1.5"),
        ("größe", "grüße"),
    ],
)
def test_name_of_different_tool_is_not_resolved(written: str, offered: str) -> None:
    assert ToolNames([offered]).resolve(written) is None


@pytest.mark.parametrize(
    ("written", "offered"),
    [("get_adress", None), ("is_commited", "is_committed"), ("is_committted", "is_committed"), ("delette_it", None)],
)
def test_doubled_letter_is_resolved_as_typo(written: str, offered: str | None) -> None:
    found = ToolNames(["get_address", "is_committed", "delete_it"]).resolve(written)
    assert found == (NameMatch(offered, "match_typo") if offered else None)


def test_tool_names_are_indexed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    looks = Counter[str]()
    names = [f"mcp__many__server_tool_name_{number}x" for number in range(1000)]
    for name in ("normalize_name", "_name_words"):
        was = getattr(tool_name_match, name)
        monkeypatch.setattr(tool_name_match, name, _counted(was, name, looks))
    for _ in range(3):
        offered = ToolNames(names)
        for written in ("servre_tol_nam", "servre_tol_nam", "another_name"):
            assert offered.resolve(written) is None
    assert len(names) <= looks["normalize_name"] < 1.1 * len(names)
    assert len(names) <= looks["_name_words"] < 1.1 * len(names)


def _counted(was: Callable[[str], Any], name: str, looks: Counter[str]) -> Callable[[str], Any]:
    def counted(each: str) -> Any:
        looks[name] += 1
        return was(each)

    return counted


def test_resolved_names_are_cached_with_limit() -> None:
    offered = ToolNames(TOOLS)
    for number in range(1000):
        assert offered.resolve(f"nothing_{number}") is None
    assert offered.resolve("GetWeather") == NameMatch("get_weather", "match_case")
    assert len(offered._resolved) == tool_name_match._MAX_CACHED


def test_disabled_match_step_is_skipped() -> None:
    written = {"match_prefix": "functions.get_weather", "match_case": "GetWeather", "match_typo": "get_weahter"}
    for step in STEPS:
        steps = [each for each in STEPS if each != step]
        assert (ToolNames(TOOLS, steps).resolve(written[step]) is None) == (step != "match_prefix")
    assert ToolNames(TOOLS, ()).resolve("functions.get_weather") is None
