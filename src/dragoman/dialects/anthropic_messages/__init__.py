"""Anthropic Messages: the API for clients.

    request   {"model": "m", "max_tokens": 1024, "system": "Be brief.",
               "messages": [{"role": "user", "content": "Weather in Bern?"}],
               "tools": [{"name": "weather", "input_schema": {…}}]}

    stream    event: message_start
              data: {"type": "message_start", "message": {"id": "msg_1", "type": "message", "role": "assistant",
                     "model": "m", "content": [], "stop_reason": null, "stop_sequence": null, "usage": {…}}}
              … {"type": "content_block_start", "index": 0, "content_block":
                 {"type": "tool_use", "id": "toolu_1", "name": "weather", "input": {}}}
              … {"type": "content_block_delta", "index": 0, "delta":
                 {"type": "input_json_delta", "partial_json": "{\\"city\\":\\"Bern\\"}"}}
              … {"type": "content_block_stop", "index": 0}
              … {"type": "message_delta", "delta": {"stop_reason": "tool_use", "stop_sequence": null}, "usage": {…}}
              … {"type": "message_stop"}

    whole     the message with its `content` blocks, `stop_reason` and `usage`

    error     {"type": "error", "error": {"type": "invalid_request_error", "message": "…"}}

    count     the request without `max_tokens`, to /v1/messages/count_tokens; {"input_tokens": 2095}

A call that was cut off ends the message with stop_reason "max_tokens". In a stream its input ends where the model
stopped. A whole message must contain an object there: `{"__unparsedToolInput": {"raw": "…"}}`, the form in which
Claude Code itself stores such input. An empty object would be valid input for many tools, and the client would run it.

`usage.input_tokens` does not count the cached part of the prompt, which has its own field. A refusal is a text block,
with stop_reason "refusal". An unavailable backend is reported as 529 `overloaded_error`, which clients retry.

If a block's `source`, or the request's `output_config` or `thinking`, contains more than the typed fields can
represent, it also stays in `extra` unchanged. An empty text is omitted. A search result is a document.

A line `x-anthropic-billing-header: …` at the beginning of the system prompt, as from Claude Code, is for the vendor
only: its servers, by their host name, receive it as the first block. For other servers, also of this API, and local
models it is removed without a warning. Before Claude Code 2.1.181 it changed with each request, which would cost a
local model its prompt cache (https://code.claude.com/docs/en/llm-gateway-protocol, 2026-11).

Models whose names do not begin like the vendor's are also listed as `claude-NAME` for clients of this API, because
Claude Code's model discovery ignores all others; a request for that name is a request for the model.

Source: https://docs.anthropic.com/en/api/messages, https://docs.anthropic.com/en/api/messages-count-tokens (2026-11).
"""

import re
from typing import Final

from dragoman.core.identifiers import LONG_NAME_FORM
from dragoman.dialects.anthropic_messages.request_reader import (
    BILLING,
    display_name,
    read_count,
    read_request,
    resolve_display_name,
)
from dragoman.dialects.anthropic_messages.request_writer import auth_headers, write_request
from dragoman.dialects.anthropic_messages.response_reader import MessagesResponseReader, count_of
from dragoman.dialects.anthropic_messages.response_writer import (
    PING,
    MessagesResponseWriter,
    status,
    write_count,
    write_error,
    write_reply,
)
from dragoman.dialects.anthropic_messages.vendor_tools import VENDOR_TOOLS
from dragoman.wire import sse
from dragoman.wire.dialect import Dialect, ObjectForm, TokenCounting
from dragoman.wire.passthrough import StreamPassthrough

DIALECT: Final = Dialect(
    name="anthropic_messages",
    path="/v1/messages",
    read_request=read_request,
    writer=MessagesResponseWriter,
    write_reply=write_reply,
    write_error=write_error,
    status=status,
    ping=PING,
    write_request=write_request,
    reader=MessagesResponseReader,
    auth_headers=auth_headers,
    tool_name_pattern=LONG_NAME_FORM,
    forwarded_headers=("anthropic-beta", "anthropic-version"),
    vendor_only_fields=frozenset({BILLING}),
    vendor_hosts=frozenset({"api.anthropic.com"}),
    passthrough=StreamPassthrough(
        end_pattern=re.compile(rb"event: ?(message_stop|error)\r?\n"),
        end_event=sse.encode(b'{"type":"message_stop"}', "message_stop"),
        model_container="message",
    ),
    display_name=display_name,
    resolve_display_name=resolve_display_name,
    vendor_tools=VENDOR_TOOLS,
    forms={
        "tool": ObjectForm(
            example='{"name": …, "input_schema": …}',
            discriminators={"input_schema": ""},
            request='{"model":"-","max_tokens":1,"messages":[{"role":"user","content":"-"}],"tools":$}',
            path="$.tools",
            output_path=("tools",),
            common_mistakes={"parameters": "input_schema", "inputSchema": "input_schema"},
        ),
        "call": ObjectForm(
            example='{"type": "tool_use", "id": …, "name": …, "input": {…}}',
            discriminators={"type": "tool_use"},
            request='{"model":"-","max_tokens":1,"messages":[{"role":"assistant","content":$}]}',
            path="$.messages[0].content",
            output_path=("messages", 1, "content"),
            common_mistakes={"call_id": "id", "arguments": "input"},
            arguments="input",
        ),
        "result": ObjectForm(
            example='{"type": "tool_result", "tool_use_id": …, "content": …}',
            discriminators={"type": "tool_result"},
            request='{"model":"-","max_tokens":1,"messages":[{"role":"user","content":$}]}',
            path="$.messages[0].content",
            output_path=("messages", 1, "content"),
            common_mistakes={"tool_call_id": "tool_use_id", "call_id": "tool_use_id", "output": "content"},
        ),
    },
    chunk_forms=(("type", r"(message|content_block)_\w+|ping", "$"),),
    token_counting=TokenCounting(
        path="/v1/messages/count_tokens",
        read_request=read_count,
        write_count=write_count,
        forwarded_fields=frozenset(
            {
                "cache_control",
                "context_management",
                "mcp_servers",
                "messages",
                "model",
                "output_config",
                "system",
                "thinking",
                "tool_choice",
                "tools",
            }
        ),
        read_count=count_of,
    ),
    usage_in_first_event=True,
)
