"""Checks responses against a schema that the backend could not constrain the model to, because tools are offered too.

The backend reports this by the warning `constraint_not_applied` named `response_format`. The text of such a response
is buffered and checked at its end. If it is not JSON of the schema, the model is re-asked once; if the second response
does not match either, the first one is sent with a warning. Responses with a tool call are not checked: their text is
not the reply.
"""

import re
from collections.abc import Sequence
from typing import Final

from msgspec.structs import replace

from dragoman.core.events import (
    AnyEvent,
    Failure,
    Finish,
    Notice,
    TextDelta,
    ToolCallStart,
    UsageUpdate,
    VendorBlock,
    VendorBlockStart,
)
from dragoman.core.messages import Message, Request, Text, Usage, add_usage
from dragoman.core.stage import EventStage, ReaskRequest
from dragoman.guard.policy import GuardPolicy
from dragoman.guard.validation.compiled_schema import CompiledSchema, decode_arguments

RESPONSE_FORMAT: Final = "response_format"
"""The name of the reply's schema in warnings."""
_FENCED: Final = re.compile(r"\s*```(?:json)?[ \t]*\n(.*)\n[ \t]*```\s*", re.DOTALL)
_MAX_VIOLATIONS: Final = 5
"""Violations that are shown to the model."""


class ReplySchemaCheck(EventStage):
    """Buffers the text of a response that the backend could not constrain, and checks it at the end."""

    def __init__(self, request: Request, policy: GuardPolicy, later: Sequence[Message] = ()) -> None:
        """
        Args:
            request: The request, with `response_schema`.
            policy: The settings of the guard.
            later: Messages that are added to the conversation during the response.
        """
        self._request, self._policy, self._later = request, policy, later
        self._may_reask = policy.reask
        self._texts: list[str] | None = None
        """The text that waits; None: it is passed on."""
        self._finish: Finish | None = None
        """The end of a response whose text waits."""
        self._reply = ""
        """The JSON of the reply; empty: none matches the schema."""
        self._mismatch = ""
        """Why the first response does not match."""
        self._usage: Usage | None = None
        self._second_usage: Usage | None = None

    def feed(self, events: Sequence[AnyEvent]) -> Sequence[AnyEvent]:
        """Returns the events that need not wait."""
        out: list[AnyEvent] = []
        for event in events:
            match event:
                case Notice("reasked" | "reask_failed"):  # a third response would be too many
                    self._may_reask = False
                case Notice("constraint_not_applied", detail=detail) if detail == RESPONSE_FORMAT:
                    self._texts = []
                case TextDelta(text) if self._texts is not None:
                    self._texts.append(text)
                    continue
                case UsageUpdate(counts):
                    self._usage = counts
                case VendorBlock() | VendorBlockStart() if self._texts:  # the reply is the text after the last of them
                    out += map(TextDelta, self._texts)
                    self._texts = []
                case ToolCallStart() | Failure() if self._texts is not None:
                    out += map(TextDelta, self._texts)
                    self._texts = None
                case Finish() if self._texts is not None:
                    self._finish = event
                    continue
                case _:
                    pass
            out.append(event)
        return out

    def reask(self) -> ReaskRequest | None:
        """Checks the text; returns the request for a second response if it does not match."""
        if self._texts is None or self._finish is None:
            return None
        text = "".join(self._texts)
        self._reply, self._mismatch = _matching_json(text, CompiledSchema(self._request.response_schema))
        if self._reply or not self._may_reask:
            return None
        prompt = (
            f"Your answer is not JSON of the JSON Schema: {self._mismatch}. "
            "Answer with that JSON alone, without other text."
        )
        turns = (Message("assistant", (Text(text),)), Message("user", (Text(prompt),)))
        most = self._policy.reask_max_tokens
        limit = min(self._request.max_tokens or most, most)
        message = f"the reply does not match its schema: {self._mismatch}; the model was re-asked"
        return ReaskRequest(
            replace(self._request, messages=(*self._request.messages, *self._later, *turns), max_tokens=limit),
            Notice("reasked", message, detail=RESPONSE_FORMAT),
        )

    def merge_reask(self, events: Sequence[AnyEvent], *, failed: bool) -> bool:
        """Takes the text of the second response, unless it contains a call, in place of the first if it matches."""
        usages = [event.usage for event in events if isinstance(event, UsageUpdate)]
        self._second_usage = usages[-1] if usages else None
        if not failed and not any(isinstance(event, ToolCallStart) for event in events):
            text = "".join(event.text for event in events if isinstance(event, TextDelta))
            self._reply, _ = _matching_json(text, CompiledSchema(self._request.response_schema))
        return bool(self._reply)

    def close(self) -> Sequence[AnyEvent]:
        """Returns the reply that matches, or the first response with a warning."""
        if self._texts is None or self._finish is None:
            return ()
        out: list[AnyEvent] = []
        if self._usage and self._second_usage:
            out.append(UsageUpdate(add_usage(self._usage, self._second_usage)))
        if not self._reply:
            message = f"the reply does not match its schema: {self._mismatch}"
            out.append(Notice("reask_failed", message, detail=RESPONSE_FORMAT))
        return [*out, TextDelta(self._reply or "".join(self._texts)), self._finish]


def _matching_json(text: str, schema: CompiledSchema) -> tuple[str, str]:
    """The JSON in the text, without a code fence around all of it, if it matches the schema; else why it does not."""
    fenced = _FENCED.fullmatch(text)
    candidate = fenced[1] if fenced else text
    try:
        value = decode_arguments(candidate)
    except ValueError:
        return "", "it is not JSON"
    problems = schema.violations(value)
    return ("", "; ".join(each.message for each in problems[:_MAX_VIOLATIONS])) if problems else (candidate, "")
