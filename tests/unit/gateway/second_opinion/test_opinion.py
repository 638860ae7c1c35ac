"""What another model gets of a request."""

from msgspec import Raw
from msgspec.structs import replace

from dragoman.core.messages import Message, Reasoning, Request, Text, Tool, ToolCall
from dragoman.gateway.second_opinion.opinion import for_another_vendor


def test_request_for_another_vendor_has_nothing_of_the_first() -> None:
    secret = {"reasoning_details": Raw(b'"secret"')}
    lookup = ToolCall("call_1", "get_weather", "{}", extra={"extra_content": Raw(b'"secret"')})
    turn = Message("assistant", (Reasoning("secret", signature="secret"), Text("Hm."), lookup), extra=secret)
    edits = b'{"edits":[{"type":"clear_thinking_20251015"},{"type":"clear_tool_uses_20250919"}]}'
    tool = Tool("get_weather", examples=('{"city":"secret"}',))
    extra = {"thinking": Raw(b'"secret"'), "context_management": Raw(edits), "top_k": Raw(b"1")}
    request = Request("m", (turn,), (tool,), prompt_tools=(tool,), extra=extra, dialect="anthropic_messages")
    sent = for_another_vendor(request)
    assert "secret" not in repr(sent)
    assert sent.messages[0].parts == (Text("Hm."), replace(lookup, extra={}))
    assert bytes(sent.extra["context_management"]) == b'{"edits": [{"type": "clear_tool_uses_20250919"}]}'
    only = replace(request, extra={"context_management": Raw(b'{"edits":[{"type":"clear_thinking_20251015"}]}')})
    assert for_another_vendor(only).extra == {}
