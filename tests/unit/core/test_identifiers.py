"""Names and ids: legal wherever they go, and themselves again when they come back."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragoman.core import messages as v
from dragoman.core.identifiers import (
    ANY_STRING,
    CALL_ID,
    LONG_NAME_FORM,
    NAME_FORM,
    ToolNameMap,
    encode_id,
    original_id,
    rename_for_api,
    valid_call_id,
)

TEXTS = st.text(st.sampled_from("ab_-./: é\x00\ud800") | st.characters(), min_size=1, max_size=150)
FORMS = pytest.mark.parametrize("form", [NAME_FORM, LONG_NAME_FORM], ids=["64", "128"])


@FORMS
@given(names=st.lists(TEXTS, unique=True, max_size=8))
def test_names_are_legal_distinct_and_come_back(form: re.Pattern[str], names: list[str]) -> None:
    table = ToolNameMap(names, form)
    sent = [table.sent(name) for name in names]
    assert all(map(form.fullmatch, sent))
    assert len(set(sent)) == len(names)
    assert [table.back(name) for name in sent] == names
    assert all(table.sent(name) == name for name in names if form.fullmatch(name))


@FORMS
@given(names=st.lists(TEXTS, unique=True, min_size=1, max_size=8))
def test_a_name_is_spelled_the_same_whatever_else_is_offered(form: re.Pattern[str], names: list[str]) -> None:
    assert [ToolNameMap(names, form).sent(name) for name in names] == [
        ToolNameMap([name], form).sent(name) for name in names
    ]


def test_a_name_that_is_the_spelling_of_another() -> None:
    spelling = ToolNameMap(["fs.read"], NAME_FORM).sent("fs.read")
    assert spelling.startswith("fs_read_")
    for offered in (["fs.read", spelling], [spelling, "fs.read"]):
        table = ToolNameMap(offered, NAME_FORM)
        assert table.sent(spelling) == spelling
        assert {table.back(table.sent(name)) for name in offered} == set(offered)


def test_a_tool_that_is_not_offered_any_more_is_spelled_as_before() -> None:
    assert ToolNameMap([], NAME_FORM).sent("fs.read") == ToolNameMap(["fs.read", "x"], NAME_FORM).sent("fs.read")
    assert ToolNameMap([], NAME_FORM).back("anything") == "anything"


@given(id=TEXTS)
def test_ids_are_legal_and_come_back(id: str) -> None:
    sent = valid_call_id(id)
    assert CALL_ID.fullmatch(sent)
    assert sent == valid_call_id(id)
    if len(id.encode("utf-8", "surrogatepass")) <= 36:
        assert original_id(sent) == id
        assert encode_id(sent, ANY_STRING) == id
    assert CALL_ID.fullmatch(encode_id(sent, CALL_ID))
    if CALL_ID.fullmatch(id) and not id.startswith("dm"):
        assert sent == id


@given(id=TEXTS)
def test_a_client_that_strips_punctuation_does_no_harm(id: str) -> None:
    """OpenClaw sends `call_ab` back as `callab`."""
    sent = valid_call_id(id)
    stripped = re.sub(r"[^a-zA-Z0-9]", "", sent)
    if sent != id:
        assert stripped == sent
    assert CALL_ID.fullmatch(encode_id(stripped, CALL_ID)) or not stripped


@pytest.mark.parametrize("id", ["dm", "dmx", "dm1", "dmaaaaaaaa", "dmZZZZZZZZ", "dm-_", "dmaaaaaaa"])
def test_an_id_that_only_looks_like_ours_is_left_alone(id: str) -> None:
    assert original_id(id) == valid_call_id(id) == encode_id(id, CALL_ID) == id


def test_a_request_is_spelled_everywhere() -> None:
    call = v.ToolCall("functions.fs.read:0", "fs.read", "{}")
    messages = (
        v.Message("user", (v.Text("hi"),)),
        v.Message("assistant", (call,)),
        v.Message("tool", (v.ToolResult(call.id, ()),)),
    )
    request = v.Request("m", messages, (v.Tool("fs.read"), v.Tool("ok")), v.ToolChoice("named", "fs.read"))
    sent = rename_for_api(request, NAME_FORM, CALL_ID)
    name = sent.tools[0].name
    assert NAME_FORM.fullmatch(name)
    assert sent.tools[1].name == "ok"
    assert sent.tool_choice.name == name
    (made,), (result,) = sent.messages[1].parts, sent.messages[2].parts
    assert isinstance(made, v.ToolCall)
    assert isinstance(result, v.ToolResult)
    assert (made.name, made.id) == (name, result.call_id)
    assert CALL_ID.fullmatch(made.id)
    assert rename_for_api(sent, NAME_FORM, ANY_STRING).messages[1].parts == (v.ToolCall(call.id, name, "{}"),)
    assert rename_for_api(sent, NAME_FORM, CALL_ID) is sent
