"""One message of the model, as the client gets it: by its own names of tools, a reply of a schema as text.

Where an answer must have something, all of it waits until that is there: what came without it may have to be asked for
once more.
"""

from collections.abc import Mapping
from typing import Final

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

_MAY_BE_ASKED_AGAIN: Final = ("stop", "tool_calls")
"""What was cut by a limit, or refused, would be again."""


class Attempt:
    """Takes the message's events; `finish` is its last, and goes to nobody by itself."""

    def __init__(self, wanted: ReplyRequirement, names: Mapping[str, str]) -> None:
        self._wanted, self._names = wanted, names
        self._held: list[AnyEvent] = []
        self._waits = wanted.call or wanted.reply
        self._has_words = False
        self._dropped = self._beside = ""
        """Of a call that may not be, and words beside a reply of a schema."""
        self._given = 0
        """Calls that went to the client."""
        self._open = ""
        """What becomes of the call that is open: it is the `reply`, or is `dropped`; else it is the client's."""
        self.finish: Finish | None = None
        self.replied = False
        """There is a reply of the schema."""
        self.called = False
        """There are calls of the client's tools."""

    @property
    def may_be_asked_again(self) -> bool:
        """It has not what it must, and another might."""
        return not self._is_right and self.finish is not None and self.finish.reason in _MAY_BE_ASKED_AGAIN

    @property
    def rests(self) -> bool:
        """The CLI does nothing behind it of its own accord but run the calls, as it does where a model said nothing."""
        whole = self.finish is not None and self.finish.reason in _MAY_BE_ASKED_AGAIN
        return whole and (self._has_words or self.called or self.replied)

    @property
    def _is_right(self) -> bool:
        return not self._waits and not (self._dropped and not (self._has_words or self.replied or self._given))

    def add(self, event: AnyEvent) -> list[AnyEvent]:
        """What can go to the client with this one."""
        match event:
            case Finish():
                self.finish = event
                return []
            case ReasoningDelta() if self._wanted.words and not self._has_words:
                self._held.append(event)  # thoughts of a call go with it
                return []
            case ToolCallStart():
                return self._begun(event)
            case ToolCallDelta(text=text) | TextDelta(text) if self._open or isinstance(event, TextDelta):
                return self._text(event, text)
            case ToolCallEnd() | ToolCallIncomplete() if self._open:
                self._open = ""
                return []
            case Start() | UsageUpdate() | Notice():
                return [event]
            case _:
                return self._out(event)

    def _begun(self, call: ToolCallStart) -> list[AnyEvent]:
        if call.name == STRUCTURED and self._wanted.reply:
            self._open = "dropped" if self.replied else "reply"
            self.replied, self._waits = True, False
            self._beside += "".join(each.text for each in self._held if isinstance(each, TextDelta))
            self._held = [each for each in self._held if isinstance(each, ReasoningDelta)]
            return self._release()
        name = self._names.get(call.name, call.name)
        self.called = True
        is_other = self._wanted.name not in ("", call.name)
        if self._wanted.words or (is_other and not self._waits):
            self._open, self._dropped = "dropped", f"{self._dropped}{name} "
            return []
        if not is_other and self._wanted.name and self._waits:
            self._drop_held_calls()
        self._held.append(ToolCallStart(call.index, call.id, name))
        if is_other:  # which is given where no other comes
            return []
        self._waits = False
        return self._release()

    def _drop_held_calls(self) -> None:
        """Drop those of other tools, now that the one that was named is called."""
        kept: list[AnyEvent] = []
        for event in self._held:
            match event:
                case ToolCallStart(name=name):
                    self._dropped += f"{name} "
                case ToolCallDelta(text=text):
                    self._dropped += text
                case ToolCallEnd() | ToolCallIncomplete():
                    pass
                case _:
                    kept.append(event)
        self._held = kept

    def _text(self, event: TextDelta | ToolCallDelta, text: str) -> list[AnyEvent]:
        if self._open == "dropped":
            self._dropped += text
            return []
        if self._open == "reply":
            return [TextDelta(text)]
        if self.replied:  # a reply of a schema is that alone
            self._beside += text
            return []
        self._has_words = True
        return self._out(event)

    def _out(self, event: AnyEvent) -> list[AnyEvent]:
        self._held.append(event)
        return [] if self._waits else self._release()

    def _release(self) -> list[AnyEvent]:
        held, self._held = self._held, []
        return [self._numbered(event) for event in held]

    def _numbered(self, event: AnyEvent) -> AnyEvent:
        """The event with its call's number among those that go to the client."""
        if isinstance(event, ToolCallStart):
            self._given += 1
        if isinstance(event, ToolCallStart | ToolCallDelta | ToolCallEnd | ToolCallIncomplete):
            return replace(event, index=self._given - 1)
        return event

    def close(self) -> list[AnyEvent]:
        """What waited, now that nothing else will be had, and what is to be told of it."""
        missed = self.may_be_asked_again
        out = self._release()
        if missed:
            out.append(Notice("reask_failed", f"{self._wanted.missed}; what was answered is given", self._dropped))
        elif self._dropped:
            out.append(Notice("extra_call_dropped", "a call was dropped that was not asked for", self._dropped))
        if self._beside.strip():
            out.append(
                Notice("content_dropped", "a reply of a schema has no place for words beside it", self._beside, "text")
            )
        return out
