"""Whether the endpoint for raw prompts is there, by which a model's own template can be used."""

from dragoman.backends.probe.context import Subject, shown
from dragoman.backends.probe.report import Finding
from dragoman.backends.probe.server_info import json, members

WHAT = "completions"
PATH = "/v1/completions"


async def measure(subject: Subject) -> Finding:
    """A few words to go on from."""
    body = {"model": subject.model, "prompt": "The sky is", "max_tokens": 4, "temperature": 0}
    got, error = await subject.asker.posted(PATH, body)
    if error is not None:
        status = getattr(error, "status", None)
        return Finding(WHAT, "no" if status in (400, 404, 405, 501) else "unknown", error.message)
    text = next(members(json(got), ["choices", "0", "text"], ""), None)
    if not isinstance(text, str):
        return Finding(WHAT, "no", "the answer has no text")
    return Finding(WHAT, "yes", f'"The sky is" goes on with {shown(text)}')
