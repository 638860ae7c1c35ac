"""Every repeatable part of a request, for each API: bodies by number of repetitions."""

import json
from collections.abc import Callable
from typing import Any, Final, TypeAlias

Grow: TypeAlias = Callable[[int], dict[str, Any]]
"""Returns the members of a body in which one part is repeated n times."""

_SCHEMA: Final = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
_HI: Final = {"role": "user", "content": "hi"}


def body(api: str, grow: Grow, n: int, **more: Any) -> bytes:
    """The request body with this part repeated n times."""
    least: dict[str, Any] = {"model": "m", "messages": [_HI], "max_tokens": 9}
    if api == "openai_responses":
        least = {"model": "m", "input": "hi", "store": False}
    return json.dumps({**least, **grow(n), **more}).encode()


def _schema(n: int) -> dict[str, Any]:
    """A schema with n properties."""
    return {
        "type": "object",
        "properties": {f"p{i}": {"type": "string", "enum": ["a", f"e{i}"]} for i in range(n)},
        "required": [f"p{i}" for i in range(n)],
    }


def _wide(n: int) -> dict[str, Any]:
    """A schema with n enum values, alternatives and definitions."""
    alternatives = [{"type": "object", "properties": {"x": {"const": i}}} for i in range(n // 4)]
    return {
        "type": "object",
        "properties": {
            "a": {"enum": [f"e{i}" for i in range(n)]},
            "b": {"anyOf": alternatives},
            "c": {"type": "array", "items": {"$ref": "#/$defs/d0"}},
        },
        "$defs": {f"d{i}": {"$ref": f"#/$defs/d{i + 1}"} for i in range(n // 4)} | {f"d{n // 4}": {"type": "string"}},
    }


def _chat_function(name: str, schema: Any = _SCHEMA) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name, "description": "d", "parameters": schema}}


def _chat_call(id: str, name: str = "f0") -> dict[str, Any]:
    return {"id": id, "type": "function", "function": {"name": name, "arguments": '{"city": "x"}'}}


def _chat_result(id: str) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": id, "content": "r"}


_F0: Final = [_chat_function("f0")]
_CHAT: Final[dict[str, Grow]] = {
    "messages of the user": lambda n: {"messages": [{"role": "user", "content": f"word {i}"} for i in range(n)]},
    "turns": lambda n: {"messages": [{"role": ("user", "assistant")[i % 2], "content": f"w{i}"} for i in range(n + 1)]},
    "messages of the model": lambda n: {
        "messages": [_HI, *({"role": "assistant", "content": "a"} for _ in range(n)), _HI]
    },
    "system messages": lambda n: {"messages": [*({"role": "system", "content": f"s{i}"} for i in range(n)), _HI]},
    "system messages between": lambda n: {
        "messages": [_HI, *({"role": "system", "content": "s"} for _ in range(n)), _HI]
    },
    "parts": lambda n: {
        "messages": [{"role": "user", "content": [{"type": "text", "text": f"w{i}"} for i in range(n)]}]
    },
    "unknown parts": lambda n: {
        "messages": [{"role": "assistant", "content": [{"type": f"t{i}"} for i in range(n)]}, _HI]
    },
    "pictures": lambda n: {
        "messages": [
            {
                "role": "user",
                "content": [{"type": "image_url", "image_url": {"url": f"https://x/{i}"}} for i in range(n)],
            }
        ]
    },
    "calls": lambda n: {
        "messages": [
            _HI,
            {"role": "assistant", "tool_calls": [_chat_call(f"c{i}") for i in range(n)]},
            *(_chat_result(f"c{i}") for i in range(n)),
        ],
        "tools": _F0,
    },
    "calls in turns": lambda n: {
        "messages": [
            _HI,
            *(
                each
                for i in range(n)
                for each in ({"role": "assistant", "tool_calls": [_chat_call(f"c{i}")]}, _chat_result(f"c{i}"))
            ),
        ],
        "tools": _F0,
    },
    "calls of one id": lambda n: {
        "messages": [
            _HI,
            {"role": "assistant", "tool_calls": [_chat_call("a") for _ in range(n)]},
            *(_chat_result("a") for _ in range(n)),
        ],
        "tools": _F0,
    },
    "calls of one id in turns": lambda n: {
        "messages": [
            _HI,
            *(
                each
                for _ in range(n)
                for each in ({"role": "assistant", "tool_calls": [_chat_call("a")]}, _chat_result("a"))
            ),
        ],
        "tools": _F0,
    },
    "calls without a result": lambda n: {
        "messages": [_HI, {"role": "assistant", "tool_calls": [_chat_call(f"c {i}") for i in range(n)]}, _HI],
        "tools": _F0,
    },
    "results of one call": lambda n: {
        "messages": [
            _HI,
            {"role": "assistant", "tool_calls": [_chat_call("a")]},
            *(_chat_result("a") for _ in range(n)),
        ],
        "tools": _F0,
    },
    "results without a call": lambda n: {"messages": [_HI, *(_chat_result(f"c{i}") for i in range(n))]},
    "calls of unknown tools": lambda n: {
        "messages": [_HI, {"role": "assistant", "tool_calls": [_chat_call(f"c{i}", f"g {i}") for i in range(n)]}],
        "tools": _F0,
    },
    "calls of 2023": lambda n: {
        "messages": [
            _HI,
            *({"role": "assistant", "function_call": {"name": f"f{i}", "arguments": "{}"}} for i in range(n)),
            *({"role": "function", "name": f"f{i}", "content": "r"} for i in range(n)),
        ]
    },
    "tools": lambda n: {"tools": [_chat_function(f"f{i}") for i in range(n)]},
    "tools of one name": lambda n: {"tools": [_chat_function("f") for i in range(n)]},
    "tools of illegal names": lambda n: {"tools": [_chat_function(f"f.{i}") for i in range(n)]},
    "allowed tools": lambda n: {
        "tools": [_chat_function(f"f{i}") for i in range(n)],
        "tool_choice": {
            "type": "allowed_tools",
            "allowed_tools": {
                "mode": "auto",
                "tools": [{"type": "function", "function": {"name": f"f{n - i - 1}"}} for i in range(n)],
            },
        },
    },
    "properties": lambda n: {"tools": [_chat_function("f", _schema(n))]},
    "values": lambda n: {"tools": [_chat_function("f", _wide(n))]},
    "properties of the reply": lambda n: {
        "response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": _schema(n)}}
    },
    "stop": lambda n: {"stop": [f"s{i}" for i in range(n)]},
    "blank stop": lambda n: {"stop": [" " * (1 + i % 97) + "\n" * (i // 97) for i in range(min(n, 2000))]},
    "metadata": lambda n: {"metadata": {f"k{i}": f"v{i}" for i in range(n)}},
    "logit_bias": lambda n: {"logit_bias": {str(i): 1 for i in range(n)}},
    "unknown members": lambda n: {f"x{i}": i for i in range(n)},
    "unknown members of a message": lambda n: {"messages": [{**_HI, **{f"x{i}": i for i in range(n)}}]},
    "one long text": lambda n: {"messages": [{"role": "user", "content": "<tool_call> \u3042 " * n}]},
}


def _item(kind: str, **members: Any) -> dict[str, Any]:
    return {"type": kind, **members}


def _function(name: str, schema: Any = _SCHEMA) -> dict[str, Any]:
    return {"type": "function", "name": name, "description": "d", "parameters": schema}


def _call_item(id: str, name: str = "f0") -> dict[str, Any]:
    return _item("function_call", call_id=id, name=name, arguments='{"city": "x"}')


def _output(id: str) -> dict[str, Any]:
    return _item("function_call_output", call_id=id, output="r")


_F0R: Final = [_function("f0")]
_RESPONSES: Final[dict[str, Grow]] = {
    "messages of the user": lambda n: {"input": [{"role": "user", "content": f"word {i}"} for i in range(n)]},
    "turns": lambda n: {"input": [{"role": ("user", "assistant")[i % 2], "content": f"w{i}"} for i in range(n + 1)]},
    "system messages between": lambda n: {"input": [_HI, *({"role": "system", "content": "s"} for _ in range(n)), _HI]},
    "parts": lambda n: {
        "input": [{"role": "user", "content": [{"type": "input_text", "text": f"w{i}"} for i in range(n)]}]
    },
    "pictures": lambda n: {
        "input": [{"role": "user", "content": [_item("input_image", image_url=f"https://x/{i}") for i in range(n)]}]
    },
    "reasoning": lambda n: {
        "input": [
            _HI,
            *(_item("reasoning", id=f"r{i}", summary=[_item("summary_text", text="t")]) for i in range(n)),
            _HI,
        ]
    },
    "calls": lambda n: {
        "input": [_HI, *(_call_item(f"c{i}") for i in range(n)), *(_output(f"c{i}") for i in range(n))],
        "tools": _F0R,
    },
    "calls in turns": lambda n: {
        "input": [_HI, *(each for i in range(n) for each in (_call_item(f"c{i}"), _output(f"c{i}")))],
        "tools": _F0R,
    },
    "calls of one id": lambda n: {
        "input": [_HI, *(_call_item("a") for _ in range(n)), *(_output("a") for _ in range(n))],
        "tools": _F0R,
    },
    "results without a call": lambda n: {"input": [_HI, *(_output(f"c{i}") for i in range(n))]},
    "unknown items": lambda n: {"input": [_HI, *(_item(f"t{i}_call", id=f"x{i}") for i in range(n))]},
    "references": lambda n: {"input": [_HI, *(_item("item_reference", id=f"msg_{i}_0") for i in range(n))]},
    "tools": lambda n: {"tools": [_function(f"f{i}") for i in range(n)]},
    "tools of illegal names": lambda n: {"tools": [_function(f"f.{i}") for i in range(n)]},
    "custom tools": lambda n: {"tools": [{"type": "custom", "name": f"f{i}"} for i in range(n)]},
    "tools of a namespace": lambda n: {
        "tools": [_item("namespace", name="ns", description="d", tools=[_function(f"f{i}") for i in range(n)])]
    },
    "namespaces": lambda n: {
        "tools": [_item("namespace", name=f"ns{i}", description="d", tools=[_function("f")]) for i in range(n)]
    },
    "tools in between": lambda n: {
        "input": [_HI, *(_item("additional_tools", tools=[_function(f"f{i}")]) for i in range(n))]
    },
    "allowed tools": lambda n: {
        "tools": [_function(f"f{i}") for i in range(n)],
        "tool_choice": {
            "type": "allowed_tools",
            "mode": "auto",
            "tools": [{"type": "function", "name": f"f{n - i - 1}"} for i in range(n)],
        },
    },
    "properties": lambda n: {"tools": [_function("f", _schema(n))]},
    "values": lambda n: {"tools": [_function("f", _wide(n))]},
    "properties of the reply": lambda n: {
        "text": {"format": {"type": "json_schema", "name": "x", "schema": _schema(n)}}
    },
    "metadata": lambda n: {"metadata": {f"k{i}": f"v{i}" for i in range(n)}},
    "include": lambda n: {"include": ["reasoning.encrypted_content"] * n},
    "unknown members": lambda n: {f"x{i}": i for i in range(n)},
}


def _use(id: str, name: str = "f0") -> dict[str, Any]:
    return {"type": "tool_use", "id": id, "name": name, "input": {"city": "x"}}


def _result(id: str) -> dict[str, Any]:
    return {"type": "tool_result", "tool_use_id": id, "content": "r"}


def _tool(name: str, schema: Any = _SCHEMA, **more: Any) -> dict[str, Any]:
    return {"name": name, "description": "d", "input_schema": schema, **more}


def _says(role: str, content: Any) -> dict[str, Any]:
    return {"role": role, "content": content}


_T0: Final = [_tool("f0")]
_CACHED: Final = {"cache_control": {"type": "ephemeral"}}
_MESSAGES: Final[dict[str, Grow]] = {
    "messages of the user": lambda n: {"messages": [_says("user", f"word {i}") for i in range(n)]},
    "turns": lambda n: {"messages": [_says(("user", "assistant")[i % 2], f"w{i}") for i in range(n + 1)]},
    "system blocks": lambda n: {"system": [{"type": "text", "text": f"s{i}", **_CACHED} for i in range(n)]},
    "parts": lambda n: {"messages": [_says("user", [{"type": "text", "text": f"w{i}", **_CACHED} for i in range(n)])]},
    "thinking": lambda n: {
        "messages": [
            _HI,
            _says("assistant", [{"type": "thinking", "thinking": "t", "signature": "s"} for _ in range(n)]),
            _HI,
        ]
    },
    "pictures": lambda n: {
        "messages": [
            _says("user", [{"type": "image", "source": {"type": "url", "url": f"https://x/{i}"}} for i in range(n)])
        ]
    },
    "calls": lambda n: {
        "messages": [
            _HI,
            _says("assistant", [_use(f"c{i}") for i in range(n)]),
            _says("user", [_result(f"c{i}") for i in range(n)]),
        ],
        "tools": _T0,
    },
    "calls in turns": lambda n: {
        "messages": [
            _HI,
            *(
                each
                for i in range(n)
                for each in (_says("assistant", [_use(f"c{i}")]), _says("user", [_result(f"c{i}")]))
            ),
        ],
        "tools": _T0,
    },
    "calls of one id": lambda n: {
        "messages": [
            _HI,
            _says("assistant", [_use("a") for _ in range(n)]),
            _says("user", [_result("a") for _ in range(n)]),
        ],
        "tools": _T0,
    },
    "results without a call": lambda n: {"messages": [_says("user", [_result(f"c{i}") for i in range(n)])]},
    "parts of a result": lambda n: {
        "messages": [
            _HI,
            _says("assistant", [_use("a")]),
            _says("user", [{**_result("a"), "content": [{"type": "text", "text": "r"} for _ in range(n)]}]),
        ],
        "tools": _T0,
    },
    "tools": lambda n: {"tools": [_tool(f"f{i}", **_CACHED) for i in range(n)]},
    "tools of illegal names": lambda n: {"tools": [_tool(f"f{i}" + "x" * 80) for i in range(n)]},
    "properties": lambda n: {"tools": [_tool("f", _schema(n))]},
    "values": lambda n: {"tools": [_tool("f", _wide(n))]},
    "stop_sequences": lambda n: {"stop_sequences": [f"s{i}" for i in range(n)]},
    "blank stop_sequences": lambda n: {
        "stop_sequences": [" " * (1 + i % 97) + "\n" * (i // 97) for i in range(min(n, 2000))]
    },
    "metadata": lambda n: {"metadata": {f"k{i}": f"v{i}" for i in range(n)}},
    "unknown members": lambda n: {f"x{i}": i for i in range(n)},
}

SHAPES: Final[dict[str, dict[str, Grow]]] = {
    "openai_chat": _CHAT,
    "openai_responses": _RESPONSES,
    "anthropic_messages": _MESSAGES,
}
