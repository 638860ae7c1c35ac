"""Warnings about one complete call of a response."""

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Final

from dragoman.core.events import Notice
from dragoman.core.messages import JsonText, Request
from dragoman.core.repeated_call import CallKey, answered_calls, call_key
from dragoman.guard.injection.copied_call import CopiedCallDetector
from dragoman.guard.verdict import PendingCall, Verdict

WARN_AT_REPEATS: Final = 3
"""From this count on a warning is emitted, whatever the policy is."""


class EarlierCalls:
    """The calls since the user's last message, counted on first use."""

    def __init__(self, request: Request) -> None:
        self._request = request
        self._counts: Counter[CallKey] | None = None

    def count(self, name: str, arguments: JsonText) -> int:
        """Returns how often this call was made."""
        if self._counts is None:
            self._counts = Counter(call_key(past.name, past.arguments) for past in answered_calls(self._request))
        return self._counts[call_key(name, arguments)] if self._counts else 0


def call_warnings(
    call: PendingCall, verdict: Verdict, steps: Sequence[str], times: int, copies: CopiedCallDetector
) -> Iterator[Notice]:
    """Yields the warnings.

    Args:
        call: The call as it arrived.
        verdict: Its arguments, and whether they are valid.
        steps: The repairs that were applied.
        times: How often the same call was made since the last user message.
        copies: Finds calls that untrusted content contains.
    """
    name = call.start.name
    if steps:
        yield Notice("call_repaired", f"{name}: {', '.join(steps)}", call.arguments)
    if where := copies.find(name, verdict.arguments):
        yield Notice("possible_prompt_injection", f"{name} and its arguments appear in {where}", verdict.arguments)
    if verdict.valid is None and verdict.reason:
        yield Notice("call_not_validated", f"{name}: {verdict.reason}")
    if times >= WARN_AT_REPEATS:
        count = f"{name} has been called {times} times with these arguments"
        yield Notice("identical_call_repeated", count, call.arguments)
