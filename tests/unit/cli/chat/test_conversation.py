"""The conversation: requests, undo, and the saved JSON."""

import json

from dragoman.cli.chat.conversation import ChatConversation
from dragoman.core.messages import Image, MediaSource, Reasoning, Text, Tool, ToolCall, ToolChoice, ToolResult

CALL = ToolCall("c", "add", '{"a": 1}')


def with_call() -> ChatConversation:
    conversation = ChatConversation("Be short.", [Tool("add")])
    conversation.add_question("Add.")
    conversation.add_reply([Reasoning("hm"), CALL])
    conversation.add_results([ToolResult("c", (Text("2"),))])
    conversation.add_reply([Text("It is 2.")])
    return conversation


def roles(conversation: ChatConversation) -> list[str]:
    return [message.role for message in conversation.request("m").messages]


def test_request_has_system_prompt_and_tools() -> None:
    request = with_call().request("m")
    assert [message.role for message in request.messages] == ["system", "user", "assistant", "tool", "assistant"]
    assert (request.model, request.stream, request.tool_choice) == ("m", True, ToolChoice())
    assert [tool.name for tool in request.tools] == ["add"]
    assert with_call().request("m", may_call=False).tool_choice.mode == "none"


def test_images_are_sent_once_before_the_text() -> None:
    conversation = ChatConversation()
    conversation.images.append(Image(MediaSource("image/png", "AAAA")))
    conversation.add_question("What is it?")
    conversation.add_question("And now?")
    first, second = conversation.request("m").messages
    assert [type(part).__name__ for part in first.parts] == ["Image", "Text"]
    assert len(second.parts) == 1


def test_undo_removes_message_with_all_that_followed() -> None:
    conversation = with_call()
    conversation.add_question("And 3?")
    assert conversation.undo() == "And 3?"
    assert roles(conversation) == ["system", "user", "assistant", "tool", "assistant"]
    assert conversation.undo() == "Add."
    assert roles(conversation) == ["system"]
    assert conversation.undo() is None


def test_only_unanswered_message_is_dropped() -> None:
    conversation = with_call()
    assert not conversation.drop_unanswered()
    conversation.add_question("And 3?")
    assert conversation.drop_unanswered()
    assert roles(conversation)[-1] == "assistant"


def test_clear_keeps_system_prompt() -> None:
    conversation = with_call()
    conversation.clear()
    assert roles(conversation) == ["system"]


def test_saved_conversation_is_a_chat_completions_request() -> None:
    saved = json.loads(with_call().to_json("m"))
    assert saved["model"] == "m"
    assert [message["role"] for message in saved["messages"]] == ["system", "user", "assistant", "tool", "assistant"]
    assert saved["messages"][2]["tool_calls"][0]["function"] == {"name": "add", "arguments": '{"a": 1}'}
    assert saved["tools"][0]["function"]["name"] == "add"
    assert "reasoning_content" not in saved["messages"][2]
    assert not saved.get("stream")
