"""Fakes of LM Studio, Ollama and MLX-Textgen, based on their documentation, issues and code.

None of the three runs here. Each is a function from a request body to the bytes of the response, headers included. Its
model is asked for the weather in Paris and in Rome: it calls `get_weather` for each, and responds once it has the
results. Each quirk is documented in its function, with sources; other behaviour of the real servers is not reproduced.
"""

import json
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, TypeAlias

Body: TypeAlias = Any
Fake: TypeAlias = Callable[[Body], bytes]
CITIES: Final = ("Paris", "Rome")
ANSWER: Final = "Sun in Paris, rain in Rome."


def lm_studio(body: Body) -> bytes:
    """LM Studio.

    Sources: the docs' page on tools, https://github.com/lmstudio-ai/docs (1_developer/3_openai-compat/tools.md);
    https://github.com/lmstudio-ai/docs/issues/177, lmstudio-ai/lmstudio-bug-tracker/issues/1904 (2026-05).
    """
    choice = body.get("tool_choice", "auto")
    if not isinstance(choice, str):  # docs issue 177; the error is a string, not an object
        told = "Invalid tool_choice type: 'object'. Supported string values: none, auto, required"
        return _whole(400, {"error": told})
    if choice == "required" and not _answered(body):  # bug tracker 1904: no text, no call, no error
        return _said(body, [{"role": "assistant", "content": ""}], "stop")
    if _answered(body) or not body.get("tools"):
        return _said(body, [{"role": "assistant", "content": ANSWER}], "stop")
    if not body.get("stream"):
        calls = [_call(365174485 + n, city) for n, city in enumerate(CITIES)]
        return _said(body, [{"role": "assistant", "tool_calls": calls}], "tool_calls")
    deltas: list[Any] = []
    for n, city in enumerate(CITIES):  # the name with empty arguments, then deltas without id, name and type
        deltas.append({"tool_calls": [{"index": n, **_call(814890118 + n, city, "")}]})
        for piece in ('{"', "city", '":"', city, '"}'):
            function = {"arguments": piece, "name": None}
            deltas.append({"tool_calls": [{"index": n, "id": None, "type": None, "function": function}]})
    return _said(body, deltas, "tool_calls")


def lm_studio_default(body: Body) -> bytes:
    """LM Studio with a model whose template has no tools, and which does not follow the requested format.

    Output that does not match the format exactly is returned as text (the same page, "In-depth flow", 3).
    """
    words = ANSWER if _answered(body) else "\n".join(_hermes(city) for city in CITIES)
    return _said(body, [{"role": "assistant", "content": words}], "stop")


def lm_studio_fails(body: Body) -> bytes:
    """LM Studio whose engine fails in mid-stream: an error without a type.

    Source: https://github.com/zendev-sh/goai/pull/110 (2026-06).
    """
    told = {"error": {"message": "Compute error."}, "message": "Compute error."}
    return _stream([_chunk({"role": "assistant", "content": "Let me"}, None), told])


def ollama(body: Body) -> bytes:
    """Ollama: each call complete in a separate chunk, all with index 0; tool_choice is ignored.

    Sources: https://github.com/ollama/ollama/issues/15457 (2026-04) and /issues/17921 (2026-08). Each chunk has
    the role and content, even if empty: openai/openai.go, `ToChunk`. A response schema also applies with tools, so
    that no call comes: /issues/13750 (2026-01).
    """
    if "response_format" in body:
        listed = body["response_format"]["json_schema"]["schema"]["properties"]["tool_calls"]
        cities = CITIES[: listed.get("maxItems")]
        calls = [{"name": "get_weather", "arguments": {"city": city}} for city in cities]
        return _said(body, [{"role": "assistant", "content": json.dumps({"tool_calls": calls})}], "stop")
    if _answered(body) or not body.get("tools"):
        return _said(body, [{"role": "assistant", "content": ANSWER}], "stop")
    calls = [{"index": 0, **_call(f"call_{n}x", city)} for n, city in enumerate(CITIES)]
    if not body.get("stream"):
        return _said(body, [{"role": "assistant", "content": "", "tool_calls": calls}], "tool_calls")
    deltas = [{"role": "assistant", "content": "", "tool_calls": [call]} for call in calls]
    return _said(body, deltas, "tool_calls")


def ollama_old(body: Body) -> bytes:
    """Ollama before 0.4.7 and 0.5.8: calls have no index, and a stream with calls ends with `stop`.

    Sources: https://github.com/ollama/ollama/issues/7881 (2024-11), /pull/7963 (2025-02).
    """
    return ollama(body).replace(b'"index": 0, "id"', b'"id"').replace(b'"tool_calls"}', b'"stop"}')


def ollama_toolless(body: Body) -> bytes:
    """Ollama with a model whose template has no tools: it rejects them; this model still writes calls.

    Sources: https://github.com/ollama/ollama/issues/13578 (2025-12); the error, /issues/6027 (2024-07).
    """
    if body.get("tools"):
        message = f"registry.ollama.ai/library/{body['model']}:latest does not support tools"
        error = {"message": message, "type": "api_error", "param": None, "code": None}
        return _whole(400, {"error": error})
    result = "<tool_response>" in body["messages"][-1]["content"]
    words = ANSWER if result else "\n".join(_hermes(city) for city in CITIES)
    return _said(body, [{"role": "assistant", "content": words}], "stop")


def mlx_textgen(body: Body) -> bytes:
    """MLX-Textgen: at most one call, complete in a chunk; all others have `tool_calls: []`; no blank line after [DONE].

    Source: https://github.com/nath1295/MLX-Textgen, src/mlx_textgen/engine.py (`get_return_dict`) and server.py
    (2024-12). Text before the call is kept, since it was already sent when the call begins; usage is only a total.
    """
    deltas: list[Any]
    if _answered(body) or not body.get("tools"):
        deltas = [{"role": "assistant", "content": word, "tool_calls": []} for word in (ANSWER[:9], ANSWER[9:])]
        return _textgen(body, deltas, "stop")
    if not body.get("stream"):
        calls = [{"index": 0, **_call("call_1a2b3c4d", CITIES[0])}]
        return _textgen(body, [{"role": "assistant", "content": None, "tool_calls": calls}], "tool_calls")
    deltas = [
        {"role": "assistant", "content": "Let me see.\n", "tool_calls": []},
        {"role": "assistant", "content": "", "tool_calls": []},
        {"role": "assistant", "content": None, "tool_calls": [{"index": 0, **_call("call_1a2b3c4d", CITIES[0])}]},
    ]
    return _textgen(body, deltas, "tool_calls")


def mlx_textgen_old(body: Body) -> bytes:
    """The first MLX-Textgen: it has no tools, and the finish_reason of each chunk is the string "null".

    Source: https://github.com/nath1295/MLX-Textgen, src/mlx_textgen/server.py of 2024-10 (`get_return_dict`). A
    complete response always ends with `length`, and reports 100 tokens.
    """
    words = ANSWER if _answered(body) else _hermes(CITIES[0])
    if not body.get("stream"):
        message = {"role": "assistant", "content": words, "tool_calls": []}
        usage = {"prompt_tokens": 100, "completion_tokens": 100, "total_tokens": 200}
        choice = {"index": 0, "message": message, "finish_reason": "length"}
        return _whole(200, {"id": "id", "object": "chat.completion", "choices": [choice], "usage": usage})
    pieces = [words[at : at + 4] for at in range(0, len(words), 4)]
    return _stream([_chunk({"role": "assistant", "content": piece}, "null") for piece in pieces], end=b"data: [DONE]")


def mlx_textgen_lacks(body: Body) -> bytes:
    """MLX-Textgen with a request for a model that it does not have (server.py, as above)."""
    return _whole(404, {"error": f'Model "{body["model"]}" does not exist.'})


def said(body: Body, words: str) -> bytes:
    """The response of any of them whose model writes this text."""
    return _said(body, [{"role": "assistant", "content": words}], "stop")


FAKES: Final[Sequence[Fake]] = (lm_studio, lm_studio_default, ollama, ollama_old, mlx_textgen)


def _textgen(body: Body, deltas: list[Any], finish: str) -> bytes:
    """The last chunk has the finish reason, and also content."""
    if not body.get("stream"):
        return _said(body, deltas, finish, usage={"total_tokens": 40})
    *earlier, last = deltas
    return _stream([*(_chunk(delta, None) for delta in earlier), _chunk(last, finish)], end=b"data: [DONE]")


def _answered(body: Body) -> bool:
    """Whether the request contains tool results, as messages or as text."""
    last = body["messages"][-1]
    return last["role"] == "tool" or "sun" in json.dumps(last)


def _hermes(city: str) -> str:
    return f'<tool_call>\n{{"name": "get_weather", "arguments": {{"city": "{city}"}}}}\n</tool_call>'


def _call(id: object, city: str, arguments: str | None = None) -> dict[str, Any]:
    written = json.dumps({"city": city}) if arguments is None else arguments
    return {"id": str(id), "type": "function", "function": {"name": "get_weather", "arguments": written}}


def _said(body: Body, deltas: list[Any], finish: str, **more: Any) -> bytes:
    """A response with these deltas; without streaming they are joined into one message."""
    if body.get("stream"):
        return _stream([*(_chunk(delta, None) for delta in deltas), _chunk({}, finish)])
    words = [delta["content"] for delta in deltas if delta.get("content")]
    message = deltas[-1] | ({"content": "".join(words)} if words else {})
    choice = {"index": 0, "message": message, "finish_reason": finish}
    return _whole(200, {"id": "chatcmpl-1", "object": "chat.completion", "choices": [choice], **more})


def _chunk(delta: Any, finish: str | None) -> Any:
    choices = [{"index": 0, "delta": delta, "finish_reason": finish}]
    return {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": choices}


def _stream(chunks: Iterable[Any], end: bytes = b"data: [DONE]\n\n") -> bytes:
    head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n"
    return head + b"".join(b"data: " + json.dumps(chunk).encode() + b"\n\n" for chunk in chunks) + end


def _whole(status: int, body: Any) -> bytes:
    content = json.dumps(body).encode()
    fields = f"content-type: application/json\r\ncontent-length: {len(content)}\r\nconnection: close"
    return f"HTTP/1.1 {status} X\r\n{fields}\r\n\r\n".encode() + content
