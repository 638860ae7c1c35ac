"""Which tool a model means by a name."""

import pytest

from dragoman.core.resolve import STEPS, Found, Offered

TOOLS = ["get_weather", "set_alarm", "get_alarm", "mcp__files__read_file", "upload_report", "enable_lights", "Bash"]


@pytest.mark.parametrize(
    ("written", "name", "step"),
    [
        ("get_weather", "get_weather", ""),
        ("functions.get_weather", "get_weather", "name_prefix"),
        ("functions/Bash", "Bash", "name_prefix"),
        ("default_api:get_weather", "get_weather", "name_prefix"),
        ("mcp__weather__get_weather", "get_weather", "name_prefix"),
        ("read_file", "mcp__files__read_file", "name_prefix"),
        ("functions.read_file", "mcp__files__read_file", "name_prefix"),
        ("mcp__Files__readFile", "mcp__files__read_file", "name_case"),
        ("bash", "Bash", "name_case"),
        ("GetWeather", "get_weather", "name_case"),
        ("get-weather", "get_weather", "name_case"),
        ("functions.GET_WEATHER", "get_weather", "name_case"),
        ("get_wether", "get_weather", "name_close"),
        ("get_weahter", "get_weather", "name_close"),
        ("getWeathr", "get_weather", "name_close"),
        ("set_alarms", "set_alarm", "name_close"),
    ],
)
def test_a_name_that_means_one_tool(written: str, name: str, step: str) -> None:
    assert Offered(TOOLS).resolve(written) == Found(name, step)


@pytest.mark.parametrize(
    "written",
    ["", "let_alarm", "unload_report", "disable_lights", "weather", "get", "x" * 200, "functions.", "mcp__a__", "..."],
)
def test_a_name_that_means_none_for_certain(written: str) -> None:
    assert Offered(TOOLS).resolve(written) is None


def test_a_name_that_could_mean_two_tools_means_none() -> None:
    assert Offered(["read_file", "readFile"]).resolve("ReadFile") is None
    assert Offered(["mcp__a__read", "mcp__b__read"]).resolve("read") is None
    assert Offered(["report_one", "report_ones"]).resolve("repor_ones") == Found("report_ones", "name_close")
    assert Offered(["get_weathers", "get_weathen"]).resolve("get_weather") is None


@pytest.mark.parametrize(
    ("written", "offered"),
    [
        ("charge_card", "change_card"),
        ("clone_issue", "close_issue"),
        ("remote_file", "remove_file"),
        ("delete_event", "delete_events"),
        ("mcp__staging__drop", "mcp__production__drop"),
        ("c", "c++"),
        ("step_1", "step_-1"),
        ("load_v15", "load_v1.5"),
        ("größe", "grüße"),
    ],
)
def test_a_name_of_something_else(written: str, offered: str) -> None:
    assert Offered([offered]).resolve(written) is None


def test_a_step_that_is_left_out_is_not_taken() -> None:
    written = {"name_prefix": "functions.get_weather", "name_case": "GetWeather", "name_close": "get_wether"}
    for step in STEPS:
        steps = [each for each in STEPS if each != step]
        assert (Offered(TOOLS, steps).resolve(written[step]) is None) == (step != "name_prefix")
    assert Offered(TOOLS, ()).resolve("functions.get_weather") is None
