"""Reads a model's text: tool calls, text and reasoning; and renders requests for models without tool support.

    calls = parse_calls(text, "hermes", tools)                   reader = ToolCallReader("hermes", tools)
    reply = parse(text, "hermes", tools)                         for piece in pieces:
    for part in reply.parts: ...                                     for event in reader.feed(piece): ...
                                                                 for event in reader.close(): ...

`dragoman` exports all of it. The classes of `dragoman.parsing` require formats as values and a generator
of ids.
"""

from collections.abc import Collection, Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

from dragoman import formats
from dragoman.api.inputs import AnyTool, parse_request, parse_tools, resolve_format
from dragoman.core.collect import Collector
from dragoman.core.events import Finish, Start
from dragoman.core.identifiers import NewId, random_id
from dragoman.core.messages import Reply, Request, Tool, ToolCall
from dragoman.dialects import Api
from dragoman.parsing.format import Format
from dragoman.parsing.reader_options import ReaderBuffering, ReaderOptions
from dragoman.parsing.reply_reader import ReplyReader, feed_error
from dragoman.parsing.trace import ReadTracer, Span, with_names, with_other_readings
from dragoman.prompting.chat_renderer import render_chat

if TYPE_CHECKING:
    from dragoman.guard.check_call import CheckedCall


class ToolCallReader(ReplyReader):
    """Reads one reply of a model while it streams, and returns events.

        reader = ToolCallReader("hermes", tools)
        for piece in pieces:
            for event in reader.feed(piece): ...
        for event in reader.close(): ...

    How the text is cut into pieces never changes the joined events. A reader is for one reply and one thread at a time.
    """

    def __init__(
        self,
        format: str | Format,
        tools: Iterable[AnyTool] | None = None,
        *,
        prompt_suffix: str = "",
        lenient: bool = False,
        buffering: ReaderBuffering = "off",
        new_id: NewId | None = None,
        control: Iterable[str] = (),
    ) -> None:
        """Creates a reader for one reply.

        Args:
            format: The model's format: a name that `dragoman formats` lists, or a `Format`.
            tools: The offered tools, as `Tool` values or in any API's shape. A call of another name stays text, with a
                warning. None: any name is accepted.
            prompt_suffix: Markup that the prompt has already opened, such as `<think>`: see `open_reasoning_prefix`.
            lenient: Also accepts calls without the format's tags, where they name an offered tool.
            buffering: "all" emits a call only when it is complete, and an incomplete call not at all.
            new_id: Generates the ids of calls, `[A-Za-z0-9]{24}`. None: random ids.
            control: The texts of the model's control tokens, for engines that pass `plain=` to `feed`.

        Raises:
            ConfigError: The format is unknown.
            RequestError: A tool is invalid; the message says which, why and where.
            UsageError: An argument has the wrong type.
        """
        resolved = resolve_format(format)
        offered = None if tools is None else parse_tools(tools)
        options = ReaderOptions(prompt_suffix=prompt_suffix, lenient=lenient, buffering=buffering, control=control)
        super().__init__(resolved, offered, new_id=new_id or random_id, options=options)


def parse(
    text: str,
    format: str | Format,
    tools: Iterable[AnyTool] | None = None,
    *,
    finish_reason: Literal["stop", "length"] = "stop",
    prompt_suffix: str = "",
    lenient: bool = False,
    new_id: NewId | None = None,
) -> Reply:
    """Parses the complete text of a model: text, reasoning and tool calls, in order.

        reply = parse(text, "hermes", tools)
        calls = [part for part in reply.parts if isinstance(part, ToolCall)]

    Args:
        text: All that the model wrote, with its special tokens.
        format: The model's format: a name that `dragoman formats` lists, or a `Format`.
        tools: The offered tools; None: any name is accepted. See `ToolCallReader`.
        finish_reason: "length" where a token limit ended the text; the reply then finishes with "length" too.
        prompt_suffix: The markup that the prompt has already opened, such as `<think>`.
        lenient: Also accepts calls without the format's tags, where they name an offered tool.
        new_id: Generates the ids of calls. None: random ids.

    Returns:
        The reply. An incomplete call is text in it.

    Raises:
        ConfigError: The format is unknown.
        RequestError: A tool is invalid; the message says which, why and where.
        UsageError: An argument has the wrong type.
    """
    reader = ToolCallReader(format, tools, prompt_suffix=prompt_suffix, lenient=lenient, new_id=new_id)
    collector = Collector(late_ids=True)
    for event in [Start("", "", 0), *reader.feed(text), *reader.close(finish_reason), Finish(finish_reason)]:
        collector.feed(event)
    return collector.reply()


def parse_calls(text: str, format: str | Format, tools: Iterable[AnyTool] | None = None) -> list[ToolCall]:
    """Parses the tool calls in the complete text of a model; `parse` also returns text and reasoning.

        calls = parse_calls(text, "hermes", tools)

    Args:
        text: All that the model wrote, with its special tokens.
        format: The model's format: a name that `dragoman formats` lists, or a `Format`.
        tools: The offered tools; None: any name is accepted.

    Returns:
        The complete calls, in order; empty where there are none.

    Raises:
        ConfigError: The format is unknown.
        RequestError: A tool is invalid; the message says which, why and where.
        UsageError: An argument has the wrong type.
    """
    return [part for part in parse(text, format, tools).parts if isinstance(part, ToolCall)]


def validate_call(call: ToolCall, tools: Iterable[AnyTool], *, disabled_repairs: Collection[str] = ()) -> "CheckedCall":
    """Validates a call against its tool's JSON Schema, and repairs it where only one meaning is possible.

    Requires `pip install 'dragoman[guard]'`.

        checked = validate_call(ToolCall("call_1", "get_weather", '{"days": "3"}'), tools)

    Args:
        call: The call as the model made it.
        tools: The offered tools, as `Tool` values or in any API's shape.
        disabled_repairs: Repairs to omit, by the names of docs/guard.md.

    Returns:
        The calls that may be run, the repairs, and for an invalid call the message for the model.

    Raises:
        ConfigError: The extra `guard` is not installed; the message has the command to type.
        RequestError: A tool is invalid; the message says which, why and where.
    """
    from dragoman.guard.check_call import check_call

    return check_call(call, parse_tools(tools), disabled_repairs)


def explain(
    text: str,
    format: str | Format,
    tools: Iterable[AnyTool] | None = None,
    *,
    finish_reason: Literal["stop", "length"] = "stop",
    prompt_suffix: str = "",
    lenient: bool = False,
    new_id: NewId | None = None,
) -> tuple[Span, ...]:
    """Explains what `parse` made of each piece of a model's text, and why.

        for span in explain(text, "hermes", tools):
            print(span.start, span.kind, span.raw, *(note.message for note in span.notes))

    Args:
        text: All that the model wrote, with its special tokens.
        format: The model's format: a name that `dragoman formats` lists, or a `Format`.
        tools: The offered tools; None: any name is accepted.
        finish_reason: "length" where a token limit ended the text.
        prompt_suffix: The markup that the prompt has already opened, such as `<think>`.
        lenient: Also accepts calls without the format's tags, where they name an offered tool.
        new_id: Generates the ids of calls. None: random ids.

    Returns:
        Spans that cover the whole text without gaps. Where the text has no call but another format, or lenient
        reading, finds one, a note says which and where.

    Raises:
        ConfigError: The format is unknown.
        RequestError: A tool is invalid; the message says which, why and where.
        UsageError: An argument has the wrong type.
    """
    if not isinstance(text, str):
        raise feed_error(text)
    offered = None if tools is None else parse_tools(tools)
    read = partial(_trace, text, offered, finish_reason=finish_reason, prompt_suffix=prompt_suffix, new_id=new_id)
    spans = read(format, lenient=lenient)
    if any(span.index is not None for span in spans):
        return spans
    others = {f"format {each.name!r}": read(each, lenient=lenient) for each in formats.built_in()}
    if offered and not lenient:
        others = {"lenient reading": read(format, lenient=True)} | others
    spans = with_other_readings(spans, others)
    return spans if any(span.notes for span in spans) else with_names(spans, [tool.name for tool in offered or ()])


def _trace(
    text: str,
    tools: tuple[Tool, ...] | None,
    format: str | Format,
    *,
    finish_reason: Literal["stop", "length"],
    prompt_suffix: str,
    lenient: bool,
    new_id: NewId | None,
) -> tuple[Span, ...]:
    resolved = resolve_format(format)
    tracer = ReadTracer(text, resolved, prompt_suffix, [tool.name for tool in tools or ()])
    reader = ToolCallReader(tracer.format, tools, prompt_suffix=prompt_suffix, lenient=lenient, new_id=new_id)
    return tracer.spans([*reader.feed(text), *reader.close(finish_reason)])


def render_messages(
    request: Request | Mapping[str, Any] | bytes, format: str | Format, *, api: Api = "openai_chat"
) -> list[dict[str, str]]:
    """Renders a request as plain messages for chat templates of models or servers without tool support.

    The tools and the instructions to call them are at the end of the system message, past calls and results in the
    format's own markup. Markup in text that the model did not write is escaped. When the conversation continues, the
    messages begin with the same bytes, so that prompt caches apply; except for reasoning, which is shown only while
    the model works on the last user message.

        messages = render_messages(body, "hermes")

    Args:
        request: The body of a request as bytes or JSON, of which messages, tools and tool choice suffice; or a
            `Request`.
        format: The model's format: a name that `dragoman formats` lists, or a `Format`.
        api: The API of `request`.

    Returns:
        Messages `{"role": "system" | "user" | "assistant", "content": …}`.

    Raises:
        ConfigError: The format or the API is unknown.
        RequestError: The request is invalid in this API; the message says why and where.
        UsageError: The argument is not a request.
    """
    turns = render_chat(parse_request(request, api), resolve_format(format))
    return [{"role": turn.role, "content": turn.text} for turn in turns]
