"""OpenAI Responses: the API for clients.

    request   {"model": "m", "instructions": "Be brief.", "input": "Weather in Bern?",
               "tools": [{"type": "function", "name": "weather", "parameters": {…}}]}
              input may be items: {"role": "user", "content": [{"type": "input_text", "text": "…"}]},
              {"type": "function_call", "call_id": "call_1", "name": "weather", "arguments": "{…}"},
              {"type": "function_call_output", "call_id": "call_1", "output": "18 degrees"}, reasoning, …

    stream    event: response.created        data: {"type": "response.created", "sequence_number": 0, "response": {…}}
              … response.in_progress, and for each item of the output
              … response.output_item.added   {"output_index": 0, "item": {"id": "fc_1_0", "type": "function_call", …}}
              … response.function_call_arguments.delta, … .done
              … response.output_item.done    {"output_index": 0, "item": {…, "status": "completed"}}
              … response.completed           {"response": {…, "output": [the items], "usage": {…}}}
              or response.incomplete at a limit, response.failed, and `error` if nothing has begun

    whole     {"id": "resp_1", "object": "response", "created_at": 1, "status": "completed", "output": […], …}

    error     {"error": {"message": "…", "type": "invalid_request_error", "param": "model", "code": null}}

    count     a request with any of its fields, to /v1/responses/input_tokens;
              {"object": "response.input_tokens", "input_tokens": 11}

Consecutive items of the model are one message. A custom tool takes free text: the model is offered a function with one
string, `input`, which is extracted from its call while it streams. Tools in an item `additional_tools` are offered like
the others. Tools of a namespace are offered under both names joined (`crm__find`), which are separated again in a call;
`tool_choice` may contain the joined name or both (`"namespace": "crm", "name": "find"`). A call that was cut off is
only in `response.incomplete`, with its status, because some clients run every call in `output_item.done`.

Reasoning is sent as a summary, which clients show, and its signature as `encrypted_content`. The API reference has the
fields of `error` at the top level, the API itself has them under `error`, and clients read either: both are sent.
`instructions` are not repeated in the response.

Fields without a typed equivalent stay in `extra`, as do `text`, `reasoning` and a choice of a vendor's tool. Tools of
other types are carried but not offered to local models, except those that the client runs (`client_tools`).
`stream_options` applies to the stream written here and is not forwarded. Ids of items consist of the response's id and
their number in it: `msg_1_0`, `fc_1_1`. So an `item_reference` refers to a part of a response, and
`previous_response_id` to the whole conversation up to it, without its `instructions`. With `store: false` a response is
stored for neither.

Rejected by name: `conversation` and `prompt`, because neither conversations nor templates are stored, `background`
responses, and tools whose names become equal when joined with their namespace.

Source: https://platform.openai.com/docs/api-reference/responses and its page on streaming (2026-11), and the types in
the openai package 3.52. Nested errors: https://github.com/openai/openai-dotnet/issues/881.
"""

import re
from typing import Final

from dragoman.core.identifiers import NAME_FORM
from dragoman.dialects.openai_responses.passthrough_events import rewrite_error
from dragoman.dialects.openai_responses.request_reader import read_count
from dragoman.dialects.openai_responses.request_writer import write_request
from dragoman.dialects.openai_responses.response_reader import ResponsesResponseReader, count_of
from dragoman.dialects.openai_responses.response_writer import ResponsesResponseWriter, write_count, write_reply
from dragoman.dialects.openai_responses.typed_request import read_request
from dragoman.dialects.openai_responses.vendor_tools import VENDOR_TOOLS
from dragoman.wire import sse
from dragoman.wire.dialect import Dialect, ObjectForm, TokenCounting
from dragoman.wire.openai_errors import auth_headers, status, write_error
from dragoman.wire.passthrough import StreamPassthrough

DIALECT: Final = Dialect(
    name="openai_responses",
    path="/v1/responses",
    read_request=read_request,
    writer=ResponsesResponseWriter,
    write_reply=write_reply,
    write_error=write_error,
    status=status,
    ping=sse.comment("ping"),
    write_request=write_request,
    reader=ResponsesResponseReader,
    auth_headers=auth_headers,
    tool_name_pattern=NAME_FORM,
    base_url_has_version=True,
    forwarded_headers=("openai-beta",),
    passthrough=StreamPassthrough(
        end_pattern=re.compile(rb"event: ?(response\.(completed|incomplete|failed)|error)\r?\n"),
        model_container="response",
        rewrite_error=rewrite_error,
    ),
    vendor_hosts=frozenset({"api.openai.com"}),
    vendor_tools=VENDOR_TOOLS,
    forms={
        "tool": ObjectForm(
            example='{"type": "function", "name": …, "parameters": …}',
            discriminators={"type": "function", "name": ""},
            request='{"model":"-","input":"-","tools":$}',
            path="$.tools",
            output_path=("tools",),
            common_mistakes={"input_schema": "parameters"},
        ),
        "call": ObjectForm(
            example='{"type": "function_call", "call_id": …, "name": …, "arguments": "{…}"}',
            discriminators={"type": "function_call"},
            request='{"model":"-","input":$}',
            path="$.input",
            output_path=("input", slice(1, None)),
            common_mistakes={"input": "arguments"},
            arguments="arguments",
        ),
        "result": ObjectForm(
            example='{"type": "function_call_output", "call_id": …, "output": …}',
            discriminators={"type": "function_call_output"},
            request='{"model":"-","input":$}',
            path="$.input",
            output_path=("input", slice(1, None)),
            common_mistakes={"tool_call_id": "call_id", "tool_use_id": "call_id", "content": "output"},
        ),
    },
    chunk_forms=(("type", r"response\..+", "$"),),
    token_counting=TokenCounting(
        path="/v1/responses/input_tokens",
        read_request=read_count,
        write_count=write_count,
        forwarded_fields=frozenset(
            {
                "input",
                "instructions",
                "model",
                "parallel_tool_calls",
                "reasoning",
                "text",
                "tool_choice",
                "tools",
                "truncation",
            }
        ),
        read_count=count_of,
    ),
)
