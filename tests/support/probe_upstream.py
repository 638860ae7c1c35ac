"""Upstream servers whose model leaks calls."""

from typing import Any

from support.stub_servers import Answer, call, chat

CHAT = "/v1/chat/completions"


def wants_tool(asked: dict[str, Any]) -> bool:
    """Whether the question needs a tool, and a tool may be called."""
    return bool(asked.get("tools")) and "weather" in str(asked["messages"]) and asked.get("tool_choice") != "none"


def calls(asked: dict[str, Any]) -> Answer:
    """A server that follows its API's documentation."""
    choice = asked.get("tool_choice", "auto")
    if isinstance(choice, dict):
        return chat(asked, "", call(choice["function"]["name"], "{}"))
    if choice == "required" or wants_tool(asked):
        both = "Rome" in str(asked["messages"])
        return chat(asked, "", call(), *([call(arguments='{"city": "Rome"}', id="call_2")] if both else []))
    return chat(asked, "Hello")


def leaks(asked: dict[str, Any]) -> Answer:
    text = 'Sure.\n<tool_call>\n{"name": "get_weather", "arguments": {"city": "Paris"}}\n</tool_call>'
    return chat(asked, text if wants_tool(asked) else "Hello")


def leaks_mistral(asked: dict[str, Any]) -> Answer:
    return chat(asked, '[TOOL_CALLS]get_weather[ARGS]{"city": "Paris"}' if wants_tool(asked) else "Hello")
