"""Names of MCP servers' tools as functions of the model."""

import itertools
import re

import pytest

from dragoman.vendor_tools.remote import function_name

LONG = "repos_list_pull_requests_associated_with_commit_for_organization"


def test_plain_names_stay_readable() -> None:
    assert function_name("github", "create_issue") == "github__create_issue"
    assert function_name("a-b", "c-d") == "a-b__c-d"


@pytest.mark.parametrize(
    "tools",
    [
        [("github", f"{LONG}_a"), ("github", f"{LONG}_b")],
        [("a", "get.user"), ("a", "get_user"), ("a", "get user")],
        [("a__b", "c"), ("a", "b__c")],
        [("a", "_b"), ("a_", "b")],
        [("a", "ü"), ("a", "ö")],
    ],
)
def test_names_of_different_tools_differ(tools: list[tuple[str, str]]) -> None:
    names = list(itertools.starmap(function_name, tools))
    assert len(set(names)) == len(tools)
    assert all(re.fullmatch("[A-Za-z0-9_-]{1,64}", name) for name in names)
