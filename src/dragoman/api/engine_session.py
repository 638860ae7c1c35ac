"""One request of a client, answered by an engine of your own.

    answer = EngineSession(body, format, created=int(time.time()))
    prompt = answer.prompt(apply_chat_template(answer.messages, add_generation_prompt=True, tokenize=False))
    for text in generate(prompt):
        send(answer.feed(text))
        if answer.over:
            break
    send(answer.close())

Text of the model in, bytes of the client's API out; all that happens between is its own: reading calls, stop strings,
one call where one at most is asked for, the stream's order, the whole body where the client wants no stream.
"""

import os.path
import sys
from collections.abc import Iterable, Mapping
from functools import cached_property
from typing import Any, Literal

from dragoman import dialects
from dragoman.api.parse import as_format, as_request, render_messages
from dragoman.api.prompt_tail import open_reasoning_prefix
from dragoman.core import hooks
from dragoman.core.call_limit import CALLS_LIMIT, one_call
from dragoman.core.collect import Collector
from dragoman.core.complete_calls import HOLD_CHARS, WholeCalls
from dragoman.core.errors import BackendUnavailableError, DragomanError
from dragoman.core.events import AnyEvent, Failure, Finish, Notice, Start, ToolCallEnd, ToolCallStart, UsageUpdate
from dragoman.core.hooks import OnError
from dragoman.core.identifiers import NewId, random_id
from dragoman.core.messages import Reply, Request, ToolCall, Usage
from dragoman.parsing.format import Format
from dragoman.parsing.reply_reader import Delivery, ReplyReader
from dragoman.text.stop_strings import StopStrings


class EngineSession:
    """A client's request, and the answer that becomes of a model's text.

    `body` is the request as it came, or what a dialect has read of it; `api` is by which it came
    (`dragoman.dialects.names()`). `created` are seconds since 1970. `id` and `new_id` give the answer and its calls
    their names, `[A-Za-z0-9]{24}`; random ones if there are none. `delivery` and `control` are the reader's
    (`ToolCallReader`). `on_error` are called with each exception of this answer and its `id`: of a request that cannot
    be read, of a piece of text that cannot, and of what `fail` is given.

    Raises: ConfigError: unknown format or API. RequestError: what is wrong with the request, and where: answer with
    `dragoman.dialects.get(api).write_error(error)`.
    """

    def __init__(
        self,
        body: Request | Mapping[str, Any] | bytes,
        format: str | Format,
        *,
        created: int,
        api: str = "openai_chat",
        id: str = "",
        new_id: NewId = random_id,
        delivery: Delivery = "stream",
        control: Iterable[str] = (),
        on_error: Iterable[OnError] = (),
    ) -> None:
        self.id = id or new_id()
        """Of the answer, without a prefix."""
        self._on_error = tuple(on_error)
        with hooks.watching(self._on_error, self.id):
            self._dialect = dialects.get(api)
            self.request = one_call(as_request(body, api))
            """What is asked: its `max_tokens`, `sampling` and `response_schema` are the engine's."""
            self.format = as_format(format)
        self.over = False
        """Nothing that still comes can matter: stop generating."""
        self._tools = self.request.tools if self.request.tool_choice.mode != "none" else ()
        self._settings: dict[str, Any] = {"new_id": new_id, "delivery": delivery, "control": tuple(control)}
        self._reader = self._read("")
        self._writer = self._dialect.writer(self.request)
        self._collector = Collector(api)
        self._stops = StopStrings(self.request.stop)
        self._begun = 0  # calls
        self._calls = WholeCalls(HOLD_CHARS if self.request.stream else sys.maxsize)
        self._start: Start | None = Start(self.id, self.request.model, created)

    @cached_property
    def messages(self) -> list[dict[str, str]]:
        """The conversation as plain messages for a chat template, tools and how to call them in the first."""
        return render_messages(self.request, self.format)

    @property
    def warnings(self) -> list[Notice]:
        """What was not as it should be, so far: for the log, as they may quote the model."""
        return self._collector.warnings

    @property
    def reply(self) -> Reply:
        """The whole answer, once it is closed."""
        return self._collector.reply()

    def prompt(self, rendered: str) -> str:
        """The prompt that the model is to go on from: the chat template's, and the beginning of a call that must come.

        To be asked before the first piece of text, as the reader learns here what the prompt has opened: thoughts, by
        the template, or a call. Where a call must come of several tools the model still says which.
        """
        tail = open_reasoning_prefix(rendered)
        opening = self._opening(tail)
        self._reader = self._read(tail + opening)
        return rendered + opening

    def feed(self, text: str, *, plain: bool = False) -> bytes:
        """What the client is to be sent for this piece of the model's text, specials kept; `b""` for nothing yet.

        `plain` as `ToolCallReader.feed` has it.

        Raises: UsageError: the piece is no text, or the answer is closed.
        """
        with hooks.watching(self._on_error, self.id):
            return self._send([] if self.over else self._reader.feed(text, plain=plain))

    def close(self, finish_reason: Literal["stop", "length"] = "stop", usage: Usage | None = None) -> bytes:
        """The last that the client is to be sent; `finish_reason` is "length" where the engine stopped at a limit.

        Raises: UsageError: the answer is closed already, or there is no such finish.
        """
        with hooks.watching(self._on_error, self.id):
            out = b"" if self.over else self._send(self._reader.close(finish_reason))
            found = self._stops.found
            reason = "stop_sequence" if found else "stop" if self.over else finish_reason
            self.over = True
            out += self._pass([*self._stops.end(), UsageUpdate(usage or Usage()), Finish(reason, found)])
            return out if self.request.stream else self._dialect.write_reply(self.reply, self.request)

    def fail(self, error: DragomanError | str) -> bytes:
        """The last that the client is to be sent, where the engine broke: an error of its API.

        Before the first byte of a stream, or of a whole answer, it is a body; its status is that of
        `dragoman.dialects.get(api).status(error)`, 503 for mere words.
        """
        self.over = True
        broken = BackendUnavailableError(error) if isinstance(error, str) else error
        hooks.call(self._on_error, broken, self.id)
        if self._start is None and self.request.stream:
            return self._writer.send(Failure(broken))
        return self._dialect.write_error(broken)

    def _read(self, opened: str) -> ReplyReader:
        past = (p.id for m in self.request.messages for p in m.parts if isinstance(p, ToolCall))
        lenient = bool(self._tools)
        return ReplyReader(
            self.format, self._tools, prompt_tail=opened, lenient=lenient, taken_ids=past, **self._settings
        )

    def _opening(self, tail: str) -> str:
        """What any call that must come begins with, behind the thoughts that the prompt has opened."""
        if self.request.tool_choice.mode not in ("required", "named"):
            return ""
        held = self.format.constrain(self._tools, self.request.tool_choice)
        if held is None:
            return ""
        closer = self.format.thoughts.get(tail.strip(), "") if tail else ""
        # Without the space at its end, which models write in one token with what follows.
        shared = _shared(call.before for call in held.calls)
        if len(held.calls) > 1:  # no half names, which no model would write so
            shared = shared.removesuffix(_shared(tool.name for tool in self._tools if tool.kind == "function"))
        return closer + (held.section[0] + shared).rstrip(" ")

    def _send(self, events: list[AnyEvent]) -> bytes:
        """What the model's own events come out as."""
        for n, event in enumerate(events, 1):
            self._begun += isinstance(event, ToolCallStart)
            if self._begun > CALLS_LIMIT:
                told = f"more than {CALLS_LIMIT} calls in one answer; it was ended there"
                events, self.over = [*events[: n - 1], Notice("call_limit_reached", told)], True
                break
            if isinstance(event, ToolCallEnd) and not self.request.tool_choice.parallel:
                events, self.over = events[:n], True
                break
        out = self._pass(self._stops.pass_on(events))
        self.over |= self._reader.over or bool(self._stops.found)
        return out

    def _pass(self, events: list[AnyEvent]) -> bytes:
        out = b""
        if self._start:
            events, self._start = [self._start, *events], None
        for each in events:
            for event in self._calls.pass_on(each):
                self._collector.send(event)
                if isinstance(event, Failure):
                    hooks.call(self._on_error, event.error, self.id)
                out += self._writer.send(event) if self.request.stream else b""
        self.over |= self._calls.failed
        return out


def _shared(texts: Iterable[str]) -> str:
    return os.path.commonprefix([*texts])  # noqa: RUF071 - text, no paths
