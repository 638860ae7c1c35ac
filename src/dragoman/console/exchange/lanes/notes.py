"""Notes about warnings, repairs and errors: the rule that applied, the meaning, what to change, and the setting."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from dragoman.catalog.warning_codes import WarningCode, warning_codes
from dragoman.console.exchange.lanes.traced_events import TracedCall, Warned
from dragoman.console.exchange.views import ExchangeNote
from dragoman.parsing.trace import Note as TraceNote
from dragoman.parsing.trace import Span

REPAIRS: Final[Mapping[str, str]] = {
    "match_prefix": "a prefix of the tool's name was dropped",
    "match_case": "the tool's name was matched in another case or spelling",
    "match_typo": "a typing error in the tool's name was corrected",
    "controls": "control characters in strings were escaped",
    "quotes": "single quotes were read as double ones",
    "inner_quotes": "quotes inside a string were escaped",
    "bare_keys": "keys without quotes were quoted",
    "commas": "missing commas were added, or extra ones dropped",
    "literals": "literals of Python were read as those of JSON",
    "escapes": "escapes that JSON lacks were read",
    "comments": "comments were dropped",
    "doubled": "an object inside a JSON string was read",
    "fences": "a code fence around the arguments was dropped",
    "unclosed_object": "an object that was not closed was closed",
    "unnest": "the arguments were moved out of an object around them",
    "to_number": "a string became a number",
    "to_boolean": "a string became true or false",
    "to_null": "a string became null",
    "to_string": "a value became a string",
    "parse_string": "a string with JSON became the object or list in it",
    "match_enum": "a value became the option that it means",
    "rename_key": "a member got the name that the schema declares",
    "drop_null_optional": "an empty value of an optional member was dropped",
    "drop_unknown": "a member without effect, which the schema does not declare, was dropped",
    "fill_default": "a missing member got its default",
    "wrap": "a value became a list of one",
    "unwrap": "a list of one became its item",
    "split_into_calls": "one call with a list became a call for each item",
}
"""What each repair of a call does, by name; docs/guard.md and docs/deviations.md have examples."""
_TRACE_MEANINGS: Final = {
    "no_call": "why this text is not a call",
    "other_reading": "read otherwise, this text contains a call",
}
_UNKNOWN: Final = WarningCode("")


def warning_note(code: str, message: str, rule: str = "") -> ExchangeNote:
    """Returns the note about a warning.

    Args:
        code: Its code.
        message: What happened.
        rule: The rule that applied, in words; empty: one that follows from the code.
    """
    known = warning_codes().get(code, _UNKNOWN)
    return ExchangeNote(
        code=code,
        message=message,
        rule=rule or _RULES.get(code, ""),
        meaning=known.meaning_text or _TRACE_MEANINGS.get(code, ""),
        remedy=known.remedy,
        settings=(known.setting,) if known.setting else (),
    )


_RULES: Final = {
    "leaked_call_recovered": "The server read this response, and left a call in its text. The gateway looks for "
    "calls of offered tools there, and makes them tool calls.",
    "call_repaired": "The guard compares each call with the tool's JSON Schema, and repairs it if only one meaning is "
    "possible.",
    "reasked": "The guard shows the model its error, and re-asks it.",
    "invalid_call": "The guard compares each call with the tool's JSON Schema.",
    "incomplete_call": "A call that is not whole is never passed on as a call.",
    "failed_over": "If a backend fails before its first event, the next one that serves the model is called.",
    "continued": "If a server fails in the middle of its text, another one continues it.",
    "json_repaired": "The reader repairs errors in a call's JSON.",
    "content_dropped": "What an API or server cannot express is dropped, and reported.",
    "prompt_trimmed": "Tool descriptions and system text are trimmed to a budget.",
}
"""The rule behind a warning, where it is not that of a format's reader."""


def warned_note(warned: Warned) -> ExchangeNote:
    """Returns the note about a captured warning."""
    return warning_note(warned.code, warned.message)


def trace_note(note: TraceNote, reader: str) -> ExchangeNote:
    """Returns the note about a span, with how the text was read as its rule."""
    return warning_note(note.code, f"{note.message} (at {note.at})", reader)


def span_notes(span: Span, reader: str) -> tuple[ExchangeNote, ...]:
    """Returns the notes about a span of a text.

    Args:
        span: The span.
        reader: How the text was read, as a phrase.
    """
    return tuple(trace_note(note, reader) for note in span.notes)


def call_notes(call: TracedCall) -> list[ExchangeNote]:
    """Returns the notes about a call: its repairs, its warnings, and how it was validated."""
    notes = [warned_note(each) for each in call.warnings]
    if call.repairs and not any(each.code == "call_repaired" for each in call.warnings):
        notes.append(warning_note("call_repaired", f"repaired: {', '.join(call.repairs)}"))
    notes += [
        ExchangeNote(code="repair", message=REPAIRS[step], rule=f"repair {step}")
        for step in call.repairs
        if step in REPAIRS
    ]
    if call.is_reasked:
        notes.append(warning_note("reasked", f"this call of {call.name} is from the second response of the model"))
    if call.is_valid:
        notes.append(ExchangeNote(code="valid", message="the arguments match the tool's schema"))
    return notes


def error_note(error: Mapping[str, Any]) -> ExchangeNote:
    """Returns the note about an error, from its fields in a capture."""
    status = f" (status {error['status']})" if error.get("status") else ""
    return ExchangeNote(code="error", message=f"{error.get('error', 'Error')}{status}: {error.get('text', '')}")


def distinct(notes: Iterable[ExchangeNote]) -> Sequence[ExchangeNote]:
    """Returns the notes, each once."""
    return list(dict.fromkeys(notes))
