"""Whether the model answers at all; and, where it thinks aloud, whether it can be kept from it for this while."""

from typing import Final

import msgspec

from dragoman.backends.probe.context import GREETING, Subject, shown, why
from dragoman.backends.probe.report import Finding, Verdict
from dragoman.backends.probe.server_info import members
from dragoman.core.errors import ContextOverflowError

_NO_REASONING: Final = {"chat_template_kwargs": msgspec.Raw(b'{"enable_thinking":false}')}
"""Read by llama.cpp, vLLM and SGLang (the READMEs and docs of each, 2026-11); others pass over it or refuse it."""


async def check_answers(subject: Subject) -> Finding:
    """Of thoughts a short answer is soon full, and then nothing could be told."""
    asker = subject.asker
    heard = subject.heard["greeting"] = await asker.ask(asker.request(GREETING))
    if heard.reply is None:
        return Finding("answers", "no", why(heard))
    if heard.thoughts or "<think>" in heard.text:
        quiet = await asker.ask(asker.request(GREETING, extra=_NO_REASONING))
        if quiet.text and not quiet.thoughts and "<think>" not in quiet.text:
            asker.extra = dict(_NO_REASONING)
            subject.heard["greeting"] = heard = quiet
    if not heard.text:
        return Finding("answers", "partly", f"it was still thinking after {heard.usage.output_tokens} tokens")
    return Finding(
        "answers", "yes", f"{shown(heard.text)} in {heard.seconds:.1f} s", {"seconds": round(heard.seconds, 2)}
    )


_STOP_PROMPT = "Count from one to ten, in words."
_STOP_TOKENS = 24


async def check_stop_strings(subject: Subject) -> Finding:
    """Without chance the second answer is the first, up to that piece."""
    asker = subject.asker
    first = await asker.ask(asker.request(_STOP_PROMPT, tokens=_STOP_TOKENS))
    if first.reply is None:
        return Finding("stop strings", "unknown", why(first))
    stop = _unique_middle(first.text)
    if not stop:
        return Finding("stop strings", "unknown", f"the model said only {shown(first.text)}")
    second = await asker.ask(asker.request(_STOP_PROMPT, tokens=_STOP_TOKENS, stop=(stop,)))
    if second.reply is None:
        return Finding("stop strings", "no", f"refused: {why(second)}")
    if stop in second.text:
        return Finding("stop strings", "no", f"the answer went on behind {stop!r}")
    if not first.text.startswith(second.text.rstrip()):
        return Finding("stop strings", "unknown", "the same question got another answer")
    which = second.reply.stop_sequence == stop
    told = f"{stop!r} ended the answer" + ("" if which else "; which one it was is not told")
    return Finding("stop strings", "yes", told, {"told": which})


def _unique_middle(text: str) -> str:
    """A few characters behind the middle that stand nowhere before."""
    for start in range(len(text) // 2, len(text) - 2):
        piece = text[start : start + 3]
        if piece.strip() == piece and text.index(piece) == start:
            return piece
    return ""


_CACHED_TOKEN_PATHS = (
    ["usage", "prompt_tokens_details", "cached_tokens"],
    ["usage", "input_tokens_details", "cached_tokens"],
    ["*", "usage", "input_tokens_details", "cached_tokens"],
    ["usage", "cache_read_input_tokens"],
    ["*", "usage", "cache_read_input_tokens"],
)


async def check_usage(subject: Subject) -> Finding:
    """Of what was heard before."""
    answers = {name: subject.heard.get(f"{kind}greeting") for name, kind in (("whole", ""), ("streamed", "streamed "))}
    facts = {name: bool(heard and heard.usage.output_tokens) for name, heard in answers.items() if heard}
    frames = [frame for heard in subject.asker.heard for frame in heard.frames]
    facts["cached"] = any(True for frame in frames for path in _CACHED_TOKEN_PATHS for _ in members(frame, path, ""))
    told = [facts.get("whole", False), facts.get("streamed", False)]
    verdict: Verdict = "yes" if all(told) else "partly" if any(told) else "no"
    words = ", ".join(f"{name} {'yes' if so else 'no'}" for name, so in facts.items())
    return Finding("usage", verdict, words, facts)


_COMMON_LOCATIONS: Final = tuple(
    f"/v1/models#data/{{model}}/{field}"
    for field in ("max_model_len", "context_length", "context_window", "max_context_length", "max_input_tokens")
)


async def check_context_window(subject: Subject) -> Finding:
    """Last, as an answer before may have told it too."""
    places = (*(subject.kind.context if subject.kind else ()), *_COMMON_LOCATIONS)
    if tokens := await subject.telling.number(places, subject.model):
        return Finding("context", "yes", f"{tokens} tokens", {"tokens": tokens})
    for heard in subject.asker.heard:
        if isinstance(heard.error, ContextOverflowError) and heard.error.limit_tokens:
            tokens = heard.error.limit_tokens
            return Finding("context", "yes", f"{tokens} tokens, as its error says", {"tokens": tokens})
    return Finding("context", "unknown", "not told")
