"""OpenAI Chat Completions: the API for clients.

    request   {"model": "m", "messages": [{"role": "user", "content": "Weather in Bern?"}],
               "tools": [{"type": "function", "function": {"name": "weather", "parameters": {…}}}]}

    stream    data: {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "m",
                     "choices": [{"index": 0, "delta": {"role": "assistant", "content": ""}, "finish_reason": null}]}
              … delta {"content": "Let me look."}
              … delta {"tool_calls": [{"index": 0, "id": "call_1", "type": "function",
                                       "function": {"name": "weather", "arguments": ""}}]}
              … delta {"tool_calls": [{"index": 0, "function": {"arguments": "{\\"city\\":\\"Bern\\"}"}}]}
              … delta {}, "finish_reason": "tool_calls"
              … choices [], "usage": {…}                     if stream_options.include_usage requests it
              data: [DONE]

    whole     {"id": "chatcmpl-1", "object": "chat.completion", "created": 1, "model": "m",
               "choices": [{"index": 0, "message": {"role": "assistant", "content": null, "tool_calls": […]},
                            "finish_reason": "tool_calls"}], "usage": {…}}

    error     {"error": {"message": "…", "type": "invalid_request_error", "param": "model", "code": null}}

Reasoning is sent as `reasoning_content`, the field that open servers and their clients use. A call that was cut off
keeps the arguments received so far; `finish_reason` is then "length".

More lenient than the API reference: `max_tokens` -1 (LM Studio's own examples) means no limit; arguments of a
past call may be an object; an empty stop string is ignored; tool_choice "auto" and "none" need no tools.
`response_format` of a schema also stays in `extra`, because its name and `strict` have no other place, and
so does `reasoning_effort`. `stream_options` applies to the stream written here and is not forwarded; neither are
`parsed_arguments`, which the openai package adds to calls.
The `functions` and `function_call` of 2023 are read as tools and tool choice; the reply then has the form of 2023, with
at most one `function_call`. A past call has no id there: its id is made from the index of its message, `function_3`,
and a message of the role `function` is the result of the last call of its name. All of them are sent upstream as
tools, which every server supports.
Rejected by name: `n` over 1.

Source: https://platform.openai.com/docs/api-reference/chat (2026-11).
"""

import re
from typing import Final

from dragoman.core.identifiers import NAME_FORM
from dragoman.dialects.openai_chat.request_reader import read_request
from dragoman.dialects.openai_chat.request_writer import write_request
from dragoman.dialects.openai_chat.response_reader import ChatResponseReader
from dragoman.dialects.openai_chat.response_writer import ChatResponseWriter, write_reply
from dragoman.dialects.openai_chat.vendor_tools import VENDOR_TOOLS
from dragoman.wire import sse
from dragoman.wire.dialect import Dialect, ObjectForm
from dragoman.wire.openai_errors import auth_headers, status, write_error
from dragoman.wire.passthrough import StreamPassthrough

DIALECT: Final = Dialect(
    name="openai_chat",
    path="/v1/chat/completions",
    read_request=read_request,
    writer=ChatResponseWriter,
    write_reply=write_reply,
    write_error=write_error,
    status=status,
    ping=sse.comment("ping"),
    write_request=write_request,
    reader=ChatResponseReader,
    auth_headers=auth_headers,
    tool_name_pattern=NAME_FORM,
    base_url_has_version=True,
    forwarded_headers=("openai-beta",),
    passthrough=StreamPassthrough(
        end_pattern=re.compile(rb'data: ?(\[DONE\]|\{"error")'),
        end_event=sse.encode(sse.DONE),
        usage_request={"stream_options": {"include_usage": True}},
        usage_only_markers=(b'"choices":[]', b'"choices": []'),
    ),
    vendor_hosts=frozenset({"api.openai.com"}),
    vendor_tools=VENDOR_TOOLS,
    forms={
        "tool": ObjectForm(
            example='{"type": "function", "function": {"name": …, "parameters": …}}',
            discriminators={"function": ""},
            request='{"model":"-","messages":[{"role":"user","content":"-"}],"tools":$}',
            path="$.tools",
            output_path=("tools",),
            common_mistakes={"function.input_schema": "function.parameters"},
        ),
        "call": ObjectForm(
            example='{"id": …, "type": "function", "function": {"name": …, "arguments": "{…}"}}',
            discriminators={"function": ""},
            request='{"model":"-","messages":[{"role":"assistant","tool_calls":$}]}',
            path="$.messages[0].tool_calls",
            output_path=("messages", 1, "tool_calls"),
            common_mistakes={"call_id": "id", "function.input": "function.arguments"},
            arguments="function.arguments",
        ),
        "result": ObjectForm(
            example='{"role": "tool", "tool_call_id": …, "content": …}',
            discriminators={"role": "tool"},
            request='{"model":"-","messages":$}',
            path="$.messages",
            output_path=("messages", slice(1, None)),
            common_mistakes={"tool_use_id": "tool_call_id", "call_id": "tool_call_id", "output": "content"},
        ),
    },
    chunk_forms=(
        ("choices", "", "$"),
        ("tool_calls", "", '{"choices":[{"index":0,"delta":$}]}'),
        ("function", "", '{"choices":[{"index":0,"delta":{"tool_calls":[$]}}]}'),
        ("content", "", '{"choices":[{"index":0,"delta":$}]}'),
    ),
)
