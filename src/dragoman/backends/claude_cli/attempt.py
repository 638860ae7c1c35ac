"""Filters one message of the model: restores the client's tool names, and turns structured output into text.

If the request requires a call or a structured reply, all events are held until it begins: a message without it may have
to be discarded, and the model re-asked.
"""

from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from dragoman.backends.claude_cli.conversation import STRUCTURED
from dragoman.backends.claude_cli.tool_choice_prompt import ReplyRequirement
from dragoman.core.events import (
    AnyEvent,
    Finish,
    Notice,
    ReasoningDelta,
    Start,
    TextDelta,
    ToolCallDelta,
    ToolCallEnd,
    ToolCallIncomplete,
    ToolCallStart,
    UsageUpdate,
)
from dragoman.core.messages import COMPLETE_FINISHES
from dragoman.core.stage import EventStage


class Attempt(EventStage):
    """The events of one message; its `finish` is stored, not emitted."""

    def __init__(self, requirement: ReplyRequirement, names: Mapping[str, str]) -> None:
        self._requirement, self._names = requirement, names
        self._buffered: list[AnyEvent] = []
        self._waits = requirement.call or requirement.reply
        self._has_text = False
        self._dropped = self._extra_text = ""
        """The text of calls that are dropped, and text next to a structured reply."""
        self._call_count = 0
        """Number of calls that were emitted."""
        self._open = ""
        """What the open call is: `reply`, `dropped`, or empty for a call of the client's tools."""
        self.finish: Finish | None = None
        self.replied = False
        """The structured reply has begun."""
        self.has_call = False
        """The message has calls of the client's tools."""

    @property
    def needs_reask(self) -> bool:
        """Whether the message lacks what is required, and another attempt may have it."""
        return not self._meets_requirement and self.finish is not None and self.finish.reason in COMPLETE_FINISHES

    @property
    def is_final(self) -> bool:
        """Whether the CLI only runs the calls after this message; it re-asks a model that wrote nothing."""
        is_finished = self.finish is not None and self.finish.reason in COMPLETE_FINISHES
        return is_finished and (self._has_text or self.has_call or self.replied)

    @property
    def _meets_requirement(self) -> bool:
        return not self._waits and not (self._dropped and not (self._has_text or self.replied or self._call_count))

    def feed(self, events: Sequence[AnyEvent]) -> Sequence[AnyEvent]:
        """Returns the events that can be emitted with these."""
        return [each for event in events for each in self._feed(event)]

    def _feed(self, event: AnyEvent) -> list[AnyEvent]:
        match event:
            case Finish():
                self.finish = event
                return []
            case ReasoningDelta() if self._requirement.text and not self._has_text:
                self._buffered.append(event)  # reasoning before a call is emitted with it
                return []
            case ToolCallStart():
                return self._start_call(event)
            case ToolCallDelta(text=text) | TextDelta(text) if self._open or isinstance(event, TextDelta):
                return self._text(event, text)
            case ToolCallEnd() | ToolCallIncomplete() if self._open:
                self._open = ""
                return []
            case Start() | UsageUpdate() | Notice():
                return [event]
            case _:
                return self._out(event)

    def _start_call(self, call: ToolCallStart) -> list[AnyEvent]:
        if call.name == STRUCTURED and self._requirement.reply:
            self._open = "dropped" if self.replied else "reply"
            self.replied, self._waits = True, False
            self._extra_text += "".join(each.text for each in self._buffered if isinstance(each, TextDelta))
            self._buffered = [each for each in self._buffered if isinstance(each, ReasoningDelta)]
            return self._release()
        name = self._names.get(call.name, call.name)
        self.has_call = True
        is_other = self._requirement.name not in ("", call.name)
        if self._requirement.text or (is_other and not self._waits):
            self._open, self._dropped = "dropped", f"{self._dropped}{name} "
            return []
        if not is_other and self._requirement.name and self._waits:
            self._drop_buffered_calls()
        self._buffered.append(ToolCallStart(call.index, call.id, name))
        if is_other:  # it is emitted only if no call of the named tool follows
            return []
        self._waits = False
        return self._release()

    def _drop_buffered_calls(self) -> None:
        """Drops the held calls of other tools, now that the named tool is called."""
        remaining: list[AnyEvent] = []
        for event in self._buffered:
            match event:
                case ToolCallStart(name=name):
                    self._dropped += f"{name} "
                case ToolCallDelta(text=text):
                    self._dropped += text
                case ToolCallEnd() | ToolCallIncomplete():
                    pass
                case _:
                    remaining.append(event)
        self._buffered = remaining

    def _text(self, event: TextDelta | ToolCallDelta, text: str) -> list[AnyEvent]:
        if self._open == "dropped":
            self._dropped += text
            return []
        if self._open == "reply":
            return [TextDelta(text)]
        if self.replied:  # a structured reply has no other text
            self._extra_text += text
            return []
        self._has_text = True
        return self._out(event)

    def _out(self, event: AnyEvent) -> list[AnyEvent]:
        self._buffered.append(event)
        return [] if self._waits else self._release()

    def _release(self) -> list[AnyEvent]:
        events, self._buffered = self._buffered, []
        return [self._numbered(event) for event in events]

    def _numbered(self, event: AnyEvent) -> AnyEvent:
        """Returns the event with the index of its call among the emitted calls."""
        if isinstance(event, ToolCallStart):
            self._call_count += 1
        if isinstance(event, ToolCallStart | ToolCallDelta | ToolCallEnd | ToolCallIncomplete):
            return replace(event, index=self._call_count - 1)
        return event

    def close(self) -> Sequence[AnyEvent]:
        """Returns the held events at the end of the last attempt, and warnings about what is missing or was dropped."""
        needs_reask = self.needs_reask
        out = self._release()
        if needs_reask:
            out.append(
                Notice(
                    "reask_failed", f"{self._requirement.missing_part}; the reply is passed on as it is", self._dropped
                )
            )
        elif self._dropped:
            out.append(
                Notice(
                    "extra_call_dropped",
                    "claude made a call that the request does not allow; the call was dropped",
                    self._dropped,
                )
            )
        if self._extra_text.strip():
            out.append(
                Notice("content_dropped", "a reply of a schema cannot have text next to it", self._extra_text, "text")
            )
        return out
