"""Whether the model answers at all; and, where it thinks aloud, whether it can be kept from it for this while."""

from typing import Final

import msgspec

from dragoman.backends.probe.context import GREETING, Subject, shown, why
from dragoman.backends.probe.report import Finding

_NO_THOUGHTS: Final = {"chat_template_kwargs": msgspec.Raw(b'{"enable_thinking":false}')}
"""Read by llama.cpp, vLLM and SGLang (the READMEs and docs of each, 2026-11); others pass over it or refuse it."""


async def measure(subject: Subject) -> Finding:
    """Of thoughts a short answer is soon full, and then nothing could be told."""
    asker = subject.asker
    heard = subject.heard["greeting"] = await asker.ask(asker.request(GREETING))
    if heard.reply is None:
        return Finding("answers", "no", why(heard))
    if heard.thoughts or "<think>" in heard.text:
        quiet = await asker.ask(asker.request(GREETING, extra=_NO_THOUGHTS))
        if quiet.text and not quiet.thoughts and "<think>" not in quiet.text:
            asker.extra = dict(_NO_THOUGHTS)
            subject.heard["greeting"] = heard = quiet
    if not heard.text:
        return Finding("answers", "partly", f"it was still thinking after {heard.usage.output_tokens} tokens")
    return Finding(
        "answers", "yes", f"{shown(heard.text)} in {heard.seconds:.1f} s", {"seconds": round(heard.seconds, 2)}
    )
