"""Whether the model answers at all; and, where it thinks aloud, whether it can be kept from it for this while."""

from typing import Final

import msgspec

from dragoman.backends.probe.context import GREETING, ProbeContext, failure_reason, quote_line
from dragoman.backends.probe.report import ProbeFinding, Verdict
from dragoman.backends.probe.server_info import values_at
from dragoman.core.errors import ContextOverflowError

_NO_REASONING: Final = {"chat_template_kwargs": msgspec.Raw(b'{"enable_thinking":false}')}
"""Read by llama.cpp, vLLM and SGLang (the READMEs and docs of each, 2026-11); others pass over it or refuse it."""


async def check_answers(context: ProbeContext) -> ProbeFinding:
    """Asks for a short answer, with tokens to spare for reasoning, which would fill a small limit alone."""
    client = context.client
    answer = context.answers["greeting"] = await client.ask(client.request(GREETING))
    if answer.reply is None:
        return ProbeFinding("answers", "no", failure_reason(answer))
    if answer.reasoning or "<think>" in answer.text:
        quiet = await client.ask(client.request(GREETING, extra=_NO_REASONING))
        if quiet.text and not quiet.reasoning and "<think>" not in quiet.text:
            client.extra = dict(_NO_REASONING)
            context.answers["greeting"] = answer = quiet
    if not answer.text:
        return ProbeFinding("answers", "partly", f"it was still thinking after {answer.usage.output_tokens} tokens")
    return ProbeFinding(
        "answers", "yes", f"{quote_line(answer.text)} in {answer.seconds:.1f} s", {"seconds": round(answer.seconds, 2)}
    )


_STOP_PROMPT = "Count from one to ten, in words."
_STOP_TOKENS = 24


async def check_stop_strings(context: ProbeContext) -> ProbeFinding:
    """Without chance the second answer is the first, up to that piece."""
    client = context.client
    first = await client.ask(client.request(_STOP_PROMPT, tokens=_STOP_TOKENS))
    if first.reply is None:
        return ProbeFinding("stop strings", "unknown", failure_reason(first))
    stop = _unique_middle(first.text)
    if not stop:
        return ProbeFinding("stop strings", "unknown", f"the model wrote only {quote_line(first.text)}")
    second = await client.ask(client.request(_STOP_PROMPT, tokens=_STOP_TOKENS, stop=(stop,)))
    if second.reply is None:
        return ProbeFinding("stop strings", "no", f"refused: {failure_reason(second)}")
    if stop in second.text:
        return ProbeFinding("stop strings", "no", f"the answer went on after {stop!r}")
    if not first.text.startswith(second.text.rstrip()):
        return ProbeFinding("stop strings", "unknown", "the same question got another answer")
    is_reported = second.reply.stop_sequence == stop
    result = f"{stop!r} ended the answer" + ("" if is_reported else "; which one it was is not told")
    return ProbeFinding("stop strings", "yes", result, {"told": is_reported})


def _unique_middle(text: str) -> str:
    """A few characters after the middle that do not occur before it."""
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


async def check_usage(context: ProbeContext) -> ProbeFinding:
    """Of what was heard before."""
    answers = {
        name: context.answers.get(f"{kind}greeting") for name, kind in (("whole", ""), ("streamed", "streamed "))
    }
    facts = {name: bool(answer and answer.usage.output_tokens) for name, answer in answers.items() if answer}
    frames = [frame for answer in context.client.answers for frame in answer.frames]
    facts["cached"] = any(True for frame in frames for path in _CACHED_TOKEN_PATHS for _ in values_at(frame, path, ""))
    reported = [facts.get("whole", False), facts.get("streamed", False)]
    verdict: Verdict = "yes" if all(reported) else "partly" if any(reported) else "no"
    summary = ", ".join(f"{name} {'yes' if is_reported else 'no'}" for name, is_reported in facts.items())
    return ProbeFinding("usage", verdict, summary, facts)


_COMMON_LOCATIONS: Final = tuple(
    f"/v1/models#data/{{model}}/{field}"
    for field in ("max_model_len", "context_length", "context_window", "max_context_length", "max_input_tokens")
)


async def check_context_window(context: ProbeContext) -> ProbeFinding:
    """Last, as an answer before may have told it too."""
    places = (*(context.provider.context if context.provider else ()), *_COMMON_LOCATIONS)
    if tokens := await context.server_info.get_number(places, context.model):
        return ProbeFinding("context", "yes", f"{tokens} tokens", {"tokens": tokens})
    for answer in context.client.answers:
        if isinstance(answer.error, ContextOverflowError) and answer.error.limit_tokens:
            tokens = answer.error.limit_tokens
            return ProbeFinding("context", "yes", f"{tokens} tokens, as its error says", {"tokens": tokens})
    return ProbeFinding("context", "unknown", "not told")
