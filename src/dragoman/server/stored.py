"""Stored responses, by their ids (`gateway.response_store`).

    GET    /v1/responses/{id}                  the response as it was sent
    DELETE /v1/responses/{id}                  {"id": "resp_1", "object": "response", "deleted": true}
    GET    /v1/responses/{id}/input_items      its input, newest first; `order`, `limit`, `after`
    POST   /v1/responses/{id}/cancel           refused: only background responses can be cancelled

A stored response cannot be streamed. Items without an id get one made of the response's id and their index.

Source: https://platform.openai.com/docs/api-reference/responses/get, …/delete, …/input-items and …/cancel (2026-11).
"""

import re
from collections.abc import Sequence
from typing import Final
from urllib.parse import parse_qsl

import msgspec

from dragoman import dialects
from dragoman.core.errors import MethodNotAllowedError, NotFoundError, RequestError, UpstreamError, quote
from dragoman.core.messages import Message, Reply, Request, UnknownPart
from dragoman.gateway import compaction
from dragoman.gateway.storage.response_store import ResponseStore

NAME: Final = "openai_responses"
_PATH: Final = re.compile(r"/v1/responses/([^/]{1,200})(/input_items|/cancel)?")
_METHODS: Final = {
    None: ("GET", "DELETE", "HEAD", "OPTIONS"),
    "/input_items": ("GET", "HEAD", "OPTIONS"),
    "/cancel": ("POST", "OPTIONS"),
}
_MOST: Final = 100
_USUAL: Final = 20

Item = dict[str, msgspec.Raw]


def is_served(path: str) -> bool:
    """Whether this is the path of a stored response."""
    return _PATH.fullmatch(path) is not None


def methods(path: str) -> Sequence[str]:
    """Returns the HTTP methods of such a path."""
    match = _PATH.fullmatch(path)
    return _METHODS[match[2]] if match else ()


def answer_stored(store: ResponseStore, method: str, path: str, query: str, owner: str = "") -> bytes:
    """Returns the response body.

    Args:
        store: The stored responses.
        method: The HTTP method.
        path: The path, which must be one of a stored response.
        query: The query string.
        owner: The name of the API key, which sees only its own responses; empty: it sees all.

    Raises:
        NotFoundError: the response is not stored, or belongs to another key.
        RequestError: a query parameter is wrong.
        MethodNotAllowedError: the path does not have this method.
    """
    match = _PATH.fullmatch(path)
    assert match is not None
    if method not in methods(path):
        raise MethodNotAllowedError(path, method, methods(path))
    id, what = match[1].removeprefix("resp_"), match[2]
    params = dict(parse_qsl(query))
    body = store.response_body(id, owner)
    if body is None:
        message = "responses are stored for a while, unless the request has store: false"
        raise NotFoundError(f"Response with id {quote(match[1])} not found: {message}")
    if what == "/cancel":
        raise RequestError("Cannot cancel a synchronous response: background responses are not supported")
    if what == "/input_items":
        return msgspec.json.encode(_page(_items(store.input_messages(id) or (), id), params))
    if method == "DELETE":
        store.delete(id)
        return msgspec.json.encode({"id": f"resp_{id}", "object": "response", "deleted": True})
    if params.get("stream", "").lower() == "true":
        raise RequestError("expected stream=false: a response that is kept cannot be streamed again", "stream")
    return body


def write_compacted(reply: Reply, request: Request) -> bytes:
    """Returns the body of `/v1/responses/compact`: the user's messages, then the sealed conversation.

    Raises: UpstreamError: the server did not return a summary.
    """
    reply_fields = msgspec.json.decode(dialects.get(NAME).write_reply(reply, request), type=dict[str, msgspec.Raw])
    output = msgspec.json.decode(reply_fields["output"], type=list[Item])
    sealed = [item for item in output if _text_field(item, "type") in compaction.ITEM_TYPES]
    if not sealed:
        raise UpstreamError("expected a compaction item of the server, got none")
    user_parts = [
        (m, tuple(p for p in m.parts if not isinstance(p, UnknownPart))) for m in request.messages if m.role == "user"
    ]
    users = [msgspec.structs.replace(message, parts=parts) for message, parts in user_parts if parts]
    body = {name: reply_fields[name] for name in ("id", "created_at", "model", "usage")}
    items = _items(users, reply.id) if users else []
    return msgspec.json.encode({**body, "object": "response.compaction", "output": [*items, *sealed]})


def _items(messages: Sequence[Message], id: str) -> list[Item]:
    """Returns the items, oldest first, each with an id."""
    dialect = dialects.get(NAME)
    written = dialect.write_request(Request("-", tuple(messages), dialect=NAME), "-").body
    input = msgspec.json.decode(written, type=dict[str, msgspec.Raw])["input"]
    if bytes(input)[:1] == b'"':
        input = msgspec.Raw(b'[{"type":"message","role":"user","content":%b}]' % bytes(input))
    items = msgspec.json.decode(input, type=list[Item])
    for number, item in enumerate(items):
        item.setdefault("id", msgspec.Raw(msgspec.json.encode(f"{_prefix(item)}_{id}_input{number}")))
        content = item.get("content")
        if content is not None and bytes(content)[:1] == b'"':
            kind = b"output_text" if _text_field(item, "role") == "assistant" else b"input_text"
            item["content"] = msgspec.Raw(b'[{"type":"%b","text":%b}]' % (kind, bytes(content)))
        item.setdefault("status", msgspec.Raw(b'"completed"'))
    return items


def _prefix(item: Item) -> str:
    kind = _text_field(item, "type")
    return {"message": "msg", "function_call": "fc", "function_call_output": "fco", "reasoning": "rs"}.get(kind, "item")


def _text_field(item: Item, name: str) -> str:
    raw = bytes(item.get(name, msgspec.Raw(b'""')))
    return raw.decode().strip('"')


def _page(items: list[Item], params: dict[str, str]) -> dict[str, object]:
    order, limit = params.get("order", "desc"), params.get("limit", str(_USUAL))
    if order not in ("asc", "desc"):
        raise RequestError(f"expected asc or desc, got {quote(order)}", "order")
    if not (limit.isascii() and limit.isdigit() and 1 <= int(limit[:9]) <= _MOST):
        raise RequestError(f"expected a whole number from 1 to {_MOST}, got {quote(limit)}", "limit")
    items = items if order == "asc" else items[::-1]
    if after := params.get("after"):
        ids = [_text_field(item, "id") for item in items]
        if after not in ids:
            raise RequestError(f"expected the id of an item of this response, got {quote(after)}", "after")
        items = items[ids.index(after) + 1 :]
    page = items[: int(limit)]
    return {
        "object": "list",
        "data": page,
        "has_more": len(page) < len(items),
        "first_id": page[0]["id"] if page else None,
        "last_id": page[-1]["id"] if page else None,
    }
