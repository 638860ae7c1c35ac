"""The guard page documents every repair step, and its examples match the code."""

import json
import re

import pytest

from dragoman.core.messages import Tool
from dragoman.core.tool_name_match import STEPS as NAMES
from dragoman.core.tool_name_match import NameMatch, ToolNames
from dragoman.guard.policy import ARGUMENT_REPAIRS
from dragoman.guard.verdict import judge_call
from support.paths import ROOT

PAGE = (ROOT / "docs/guard.md").read_text()


def rows(head: str) -> list[tuple[str, list[str]]]:
    """The rows of the table with this head: the step, and the code in each other cell."""
    table = PAGE.split(f"| step | {head} |\n", 1)[1].split("\n\n", 1)[0]
    found = []
    for row in table.splitlines()[1:]:
        step, *cells = row.strip("| ").split(" | ")
        found.append((step.strip("`"), [" ".join(re.findall("`([^`]+)`", cell)) for cell in cells]))
    return found


def tool(members: str, closed: bool) -> Tool:
    read = json.loads(members)
    schema = {
        "type": "object",
        "properties": {name.rstrip("!"): each for name, each in read.items()},
        "required": [name[:-1] for name in read if name.endswith("!")],
        "additionalProperties": not closed,
    }
    return Tool("t", parameters=json.dumps(schema))


def test_guard_page_lists_every_step_in_order() -> None:
    assert tuple(step for step, _ in rows("tools | written | called")) == NAMES
    assert tuple(step for step, _ in rows("schema | written | sent")) == ARGUMENT_REPAIRS
    assert {step for step, _ in rows("not repaired | reason")} <= {*NAMES, *ARGUMENT_REPAIRS}


@pytest.mark.parametrize(("step", "cells"), rows("tools | written | called"))
def test_tool_name_example_is_resolved_as_documented(step: str, cells: list[str]) -> None:
    offered, written, called = cells
    assert ToolNames([offered]).resolve(written) == NameMatch(called, step)


@pytest.mark.parametrize(("step", "cells"), rows("schema | written | sent"))
def test_argument_example_is_repaired_as_documented(step: str, cells: list[str]) -> None:
    members, written, sent = cells
    verdict = judge_call(tool(members, step == "drop_unknown"), written, ARGUMENT_REPAIRS)
    assert verdict.repairs == (step,)
    assert " ".join([verdict.arguments, *(each.arguments for each in verdict.extra_calls)]) == sent
    assert judge_call(tool(members, step == "drop_unknown"), written, set(ARGUMENT_REPAIRS) - {step}).valid is False
