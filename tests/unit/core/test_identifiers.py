"""Names and ids are valid for each API, and restored in responses."""

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
def test_sent_names_are_valid_unique_and_reversible(form: re.Pattern[str], names: list[str]) -> None:
    table = ToolNameMap(names, form)
    sent = [table.sent(name) for name in names]
    assert all(map(form.fullmatch, sent))
    assert len(set(sent)) == len(names)
    assert [table.back(name) for name in sent] == names
    assert all(table.sent(name) == name for name in names if form.fullmatch(name))


@FORMS
@given(names=st.lists(TEXTS, unique=True, min_size=1, max_size=8))
def test_sent_name_does_not_depend_on_other_tools(form: re.Pattern[str], names: list[str]) -> None:
    assert [ToolNameMap(names, form).sent(name) for name in names] == [
        ToolNameMap([name], form).sent(name) for name in names
    ]


def test_name_equal_to_sent_form_of_another_is_kept() -> None:
    spelling = ToolNameMap(["fs.read"], NAME_FORM).sent("fs.read")
    assert spelling.startswith("fs_read_")
    for offered in (["fs.read", spelling], [spelling, "fs.read"]):
        table = ToolNameMap(offered, NAME_FORM)
        assert table.sent(spelling) == spelling
        assert {table.back(table.sent(name)) for name in offered} == set(offered)


def test_tool_that_is_not_offered_has_same_sent_name() -> None:
    assert ToolNameMap([], NAME_FORM).sent("fs.read") == ToolNameMap(["fs.read", "x"], NAME_FORM).sent("fs.read")
    assert ToolNameMap([], NAME_FORM).back("anything") == "anything"


@given(id=TEXTS)
def test_sent_ids_are_valid_and_reversible(id: str) -> None:
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
def test_id_without_punctuation_is_still_valid(id: str) -> None:
    """OpenClaw sends `call_ab` back as `callab`."""
    sent = valid_call_id(id)
    stripped = re.sub(r"[^a-zA-Z0-9]", "", sent)
    if sent != id:
        assert stripped == sent
    assert CALL_ID.fullmatch(encode_id(stripped, CALL_ID)) or not stripped


@pytest.mark.parametrize("id", ["dm", "dmx", "dm1", "dmaaaaaaaa", "dmZZZZZZZZ", "dm-_", "dmaaaaaaa"])
def test_id_that_only_looks_encoded_is_unchanged(id: str) -> None:
    assert original_id(id) == valid_call_id(id) == encode_id(id, CALL_ID) == id


def test_request_is_renamed_everywhere() -> None:
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
