"""Parley: an API that nobody has, in which turns say something or have tools run.

    request   {"model": "m", "turns": [{"by": "user", "say": "Weather in Bern?"}],
               "tools": [{"tool": "weather", "about": "…", "with": {…}}], "must": "weather", "limit": 100}
              a past turn of the model  {"by": "model", "say": "…", "do": [{"id": "c1", "tool": "f", "with": {…}}]}
              and of its tools          {"by": "tools", "told": [{"id": "c1", "say": "sun"}]}

    stream    data: {"say": "Let me look."}
              data: {"do": {"id": "c1", "tool": "weather"}}
              data: {"with": "{\\"city\\":"}      data: {"with": "\\"Bern\\"}"}
              data: {"done": "do", "tokens": [10, 5]}

    whole     {"say": "…", "do": [{"id": "c1", "tool": "weather", "with": {…}}], "done": "do", "tokens": [10, 5]}

    error     {"wrong": "…", "at": "$.turns"}

`done` is "say" or "do", or "cut" at the limit, or "wrong" with the words beside it. It has no thoughts and no pictures.

Source: docs/adding-a-dialect.md (2026-11), whose example this is.
"""

from typing import Final

from dragoman.core.identifiers import NAME_FORM
from dragoman.dialects.parley.request_reader import read_request
from dragoman.dialects.parley.request_writer import write_request
from dragoman.dialects.parley.response_reader import ParleyResponseReader
from dragoman.dialects.parley.response_writer import ParleyResponseWriter, status, write_error, write_reply
from dragoman.wire import sse
from dragoman.wire.dialect import Dialect, ObjectForm
from dragoman.wire.openai_errors import auth_headers

DIALECT: Final = Dialect(
    name="parley",
    path="/v1/parley",
    read_request=read_request,
    writer=ParleyResponseWriter,
    write_reply=write_reply,
    write_error=write_error,
    status=status,
    ping=sse.comment("ping"),
    write_request=write_request,
    reader=ParleyResponseReader,
    auth_headers=auth_headers,
    tool_name_pattern=NAME_FORM,
    forms={
        "tool": ObjectForm(
            example='{"tool": …, "about": …, "with": …}',
            discriminators={"about": ""},
            request='{"model":"-","turns":[{"by":"user","say":"-"}],"tools":$}',
            path="$.tools",
            output_path=("tools",),
        ),
        "call": ObjectForm(
            example='{"id": …, "tool": …, "with": {…}}',
            discriminators={"tool": "", "with": ""},
            request='{"model":"-","turns":[{"by":"model","do":$}]}',
            path="$.turns[0].do",
            output_path=("turns", 1, "do"),
            arguments="with",
        ),
        "result": ObjectForm(
            example='{"id": …, "say": …}',
            discriminators={"id": "", "say": ""},
            request='{"model":"-","turns":[{"by":"tools","told":$}]}',
            path="$.turns[0].told",
            output_path=("turns", 1, "told"),
        ),
    },
    chunk_forms=(("with", "", "$"), ("do", "", "$")),
)
