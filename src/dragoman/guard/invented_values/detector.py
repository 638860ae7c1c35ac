"""Detects identifiers that a model invented: values of a call that occur nowhere in the conversation.

    user              Refund the last order of Ann Lee.
    the model's call  refund_order {"order_id": "12345"}        invented: find it out first with list_orders

A value counts as known if it or its parts occur in a message, a tool result or a tool's definition, in any notation.
What a person could derive is never reported: small numbers, codes of countries and currencies, dates, options of the
schema. An example in the description of a parameter is known only where no tool could find a value. Conversations with
images are not checked, because the value can be in one.
"""

from collections.abc import Iterable, Sequence
from typing import Final, Literal, NamedTuple

import msgspec
from msgspec.structs import replace

from dragoman.catalog import models
from dragoman.core.errors import cut
from dragoman.core.events import AnyEvent, Notice
from dragoman.core.messages import JsonText, Message, Request, Tool, ToolCall
from dragoman.guard.invented_values.compact_text import SearchBudget
from dragoman.guard.invented_values.finder_tools import FinderTools
from dragoman.guard.invented_values.identifiers import (
    PLACEHOLDER_FOLDER,
    IdentifierValue,
    find_identifiers,
    has_short_number,
    is_example,
    is_numbered_name,
    is_placeholder,
    is_public_name,
)
from dragoman.guard.invented_values.known_words import KnownWords, conversation_words, definition_words
from dragoman.guard.invented_values.stated_ids import StatedIds
from dragoman.guard.reask import ReaskedCall, RejectedCall
from dragoman.steps.progress import request_progress

_MAX_SHOWN_CHARS: Final = 60
_ABSENT: Final = "occurs nowhere in this conversation"
_PROBLEMS: Final = {"id": _ABSENT, "path": _ABSENT, "contact": _ABSENT, "name": "is a name, not an id"}
"""By the kind of the value."""


class InventedValue(NamedTuple):
    """An invented value, and what to do about it."""

    message: str
    """For warnings: which value it is."""
    reason: str
    """For the model; "" if the model should not be re-asked: no tool could find it, or it may be general knowledge."""

    rejection: Literal["invented", "guessed"] = "invented"
    """Why a call with it is rejected, if the model is re-asked."""
    finders: tuple[str, ...] = ()
    """Tools that could find it, if the model is re-asked."""
    instead: tuple[str, ...] = ()
    """Tools one of which is to be called instead; empty: the model decides."""

    def notice(self, arguments: JsonText) -> Notice:
        """Returns the warning."""
        return Notice("invented_value", self.message, arguments)

    def waiting_for(self, earlier: Iterable[ToolCall]) -> str:
        """Returns why the call must wait for the result of an earlier call of the same response; "" if it need not.

        Args:
            earlier: The earlier calls.
        """
        found = next((call.name for call in earlier if call.name in self.finders), "")
        return (
            f"{self.message}: it is in the result of {found}; the response was ended before this call" if found else ""
        )

    def rejected(self, call: ToolCall, events: tuple[AnyEvent, ...]) -> RejectedCall:
        """Returns the call as one that cannot be sent as it is.

        Args:
            call: The call.
            events: Its events, and the warnings about it.
        """
        return RejectedCall(self.rejection, self.reason, call, events, [], self.instead)


class InventedValueDetector:
    """Checks the calls of one response."""

    def __init__(self, request: Request, setting: str, later: Sequence[Message] = ()) -> None:
        """
        Args:
            request: The request.
            setting: `guard.invented_values`.
            later: Messages of later rounds; more may be appended at any time.
        """
        self._request, self._setting, self._later = request, setting, later
        self.budget = SearchBudget()
        """What may be searched for values, in all rounds together."""
        self._finders = FinderTools(request.tools, self.budget)
        self._conversation: KnownWords | None = None
        self._definitions: KnownWords | None = None
        self._stated = StatedIds(request.messages, request.tools, self.budget)
        self._called: frozenset[str] | None = None
        """Tools that were called in this turn; None: not known yet."""
        self._indexed = -1
        """Number of later messages that are read; -1: no message is."""

    def find(self, tool: Tool | None, arguments: JsonText) -> InventedValue | None:
        """Returns the first invented value of a valid call; None if there is none.

        Args:
            tool: The tool that is called; None: its definition is not known.
            arguments: The arguments.
        """
        if self._setting == "off" or tool is None or not self._is_enabled():
            return None
        try:
            decoded = msgspec.json.decode(arguments)
        except (ValueError, RecursionError):
            return None
        invented = next((each for each in find_identifiers(tool, decoded) if self._is_invented(each, tool.name)), None)
        if invented is None:
            return None
        problem = f'{invented.name}: "{cut(invented.value, _MAX_SHOWN_CHARS)}" {_PROBLEMS[invented.kind]}'
        rejection: Literal["invented", "guessed"] = "guessed" if invented.kind == "contact" else "invented"
        reason, finders = self._reason(invented, problem, tool.name)
        return InventedValue(f"{tool.name}: {problem}", reason, rejection, tuple(finders), self._untried(finders))

    def _is_enabled(self) -> bool:
        if self._setting == "auto":
            profile = models.find(self._request.model)
            self._setting = "reask" if profile is not None and profile.invents_values else "off"
        return self._setting != "off"

    def _read(self) -> None:
        if self._indexed < len(self._later):
            self._indexed = len(self._later)
            messages = (*self._request.messages, *self._later)
            self._conversation = conversation_words(messages, self.budget)
            self._definitions = self._definitions or definition_words(self._request.tools)
            self._stated = StatedIds(messages, self._request.tools, self.budget)
            self._called = None

    def _is_invented(self, found: IdentifierValue, called: str) -> bool:
        self._read()
        known = self._conversation
        if known is None:
            return False
        if found.kind == "name":
            return not self._stated.is_id(found) and bool(self._finders.find(found, called))
        if found.kind == "id" and is_numbered_name(found) and not self._is_findable_number(found, called):
            return False
        if is_placeholder(found) and not (found.kind == "path" and _is_in_folder(found.value, known)):
            return True
        if found.value.isdigit() and known.has_spelled_numbers:
            return False
        if found.kind == "contact":
            numbers = [word for word in found.value.split() if any(map(str.isdigit, word))]
            return not (known.contains(found.value) or all(map(known.contains, numbers)))
        value = found.value.replace("\\", "/").rstrip("/").rpartition("/")[2] if found.kind == "path" else found.value
        stem = value.rpartition(".")[0] or value if found.kind == "path" else value
        if found.kind == "id" and is_example(found) and self._finders.find(found, called):
            return not known.contains(stem)
        return not known.contains(stem, self._definitions)

    def _is_findable_number(self, numbered: IdentifierValue, called: str) -> bool:
        return not has_short_number(numbered.value) and self._finders.is_named(numbered, called)

    def _reason(self, found: IdentifierValue, problem: str, called: str) -> tuple[str, Sequence[str]]:
        """Returns the reason for the model, and the tools that could find the value."""
        if self._setting != "reask" or self._request.tool_choice.mode == "named" or is_public_name(found):
            return "", ()
        if found.kind == "contact":
            is_free = self._request.tool_choice.mode == "auto"
            return (f"{problem}. The call was not run." if is_free else ""), ()
        if found.kind == "path" or self._stated.user_names_ids:
            finders = self._finders.find(found, called)
        else:
            finders = self._finders.find_first(found, called, self._stated)
        if not finders:
            return "", ()
        asks = "" if self._request.tool_choice.mode == "required" else ", or ask the user for it"
        reason = (
            f"{problem}. The call was not run. "
            f"Find the right {found.name} out first: call {' or '.join(finders)}{asks}."
        )
        return reason, finders

    def _untried(self, finders: Sequence[str]) -> tuple[str, ...]:
        """Returns the likeliest of these tools, if none was called in this turn."""
        if not finders:
            return ()
        if self._called is None:
            messages = (*self._request.messages, *self._later)
            self._called = frozenset(request_progress(replace(self._request, messages=messages)).calls)
        return () if self._called.intersection(finders) else (finders[0],)


def _is_in_folder(path: str, known: KnownWords) -> bool:
    """Whether the conversation contains the path, or a folder that contains it: then the model did not make it up."""
    inside = f"{path.lower().strip('/')}/"
    return any(inside.startswith(f"{written.strip('/').rstrip('.')}/") for written in known.matches(PLACEHOLDER_FOLDER))


def without_invented(calls: Sequence[ReaskedCall], rejected: Sequence[RejectedCall]) -> list[ReaskedCall]:
    """Returns the calls of a second response that can replace those of the first.

    If the model was re-asked for an invented value, calls with one are left out, unless there are no others.

    Args:
        calls: The calls of the second response.
        rejected: The rejected calls of the first response.
    """
    if not any(each.kind == "invented" for each in rejected):
        return list(calls)
    return [each for each in calls if not any(map(_is_warning, each.events))] or list(calls)


def _is_warning(event: AnyEvent) -> bool:
    return isinstance(event, Notice) and event.code == "invented_value"
