"""Where thoughts stand in answers: in a field, and in which, or in the text."""

from dragoman.backends.probe.context import Subject
from dragoman.backends.probe.report import Finding
from dragoman.backends.probe.server_info import members

WHAT = "thoughts"
_FIELDS = ("reasoning_content", "reasoning", "thinking")
_PLACES = (["choices", "*", "message"], ["choices", "*", "delta"])


async def measure(subject: Subject) -> Finding:
    """Of what was heard before."""
    said = [
        inner
        for heard in subject.asker.heard
        for frame in heard.frames
        for place in _PLACES
        for inner in members(frame, place, "")
        if isinstance(inner, dict)
    ]
    fields = [name for name in _FIELDS if any(inner.get(name) for inner in said)]
    if fields:
        return Finding(WHAT, "yes", f"in the field {' and '.join(fields)}", {"fields": fields})
    if any(heard.thoughts for heard in subject.asker.heard):
        return Finding(WHAT, "yes", "in blocks of their own")
    if any("<think>" in heard.text for heard in subject.asker.heard):
        return Finding(WHAT, "partly", "in the text, between <think> tags", {"fields": []})
    return Finding(WHAT, "unknown", "none came")
