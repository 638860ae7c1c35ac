"""Whether tokens are counted: of whole answers and of streams, and what of the prompt came from the cache."""

from dragoman.backends.probe.context import Subject
from dragoman.backends.probe.report import Finding, Verdict
from dragoman.backends.probe.server_info import members

WHAT = "usage"
_CACHED = (
    ["usage", "prompt_tokens_details", "cached_tokens"],
    ["usage", "input_tokens_details", "cached_tokens"],
    ["*", "usage", "input_tokens_details", "cached_tokens"],
    ["usage", "cache_read_input_tokens"],
    ["*", "usage", "cache_read_input_tokens"],
)


async def measure(subject: Subject) -> Finding:
    """Of what was heard before."""
    answers = {name: subject.heard.get(f"{kind}greeting") for name, kind in (("whole", ""), ("streamed", "streamed "))}
    facts = {name: bool(heard and heard.usage.output_tokens) for name, heard in answers.items() if heard}
    frames = [frame for heard in subject.asker.heard for frame in heard.frames]
    facts["cached"] = any(True for frame in frames for path in _CACHED for _ in members(frame, path, ""))
    told = [facts.get("whole", False), facts.get("streamed", False)]
    verdict: Verdict = "yes" if all(told) else "partly" if any(told) else "no"
    words = ", ".join(f"{name} {'yes' if so else 'no'}" for name, so in facts.items())
    return Finding(WHAT, verdict, words, facts)
