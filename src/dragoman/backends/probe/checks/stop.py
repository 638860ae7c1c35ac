"""Whether a stop string ends the answer: a piece from the middle of what the model has just said."""

from dragoman.backends.probe.context import Subject, shown, why
from dragoman.backends.probe.report import Finding

WHAT = "stop strings"
_WORDS = "Count from one to ten, in words."
_TOKENS = 24


async def measure(subject: Subject) -> Finding:
    """Without chance the second answer is the first, up to that piece."""
    asker = subject.asker
    first = await asker.ask(asker.request(_WORDS, tokens=_TOKENS))
    if first.reply is None:
        return Finding(WHAT, "unknown", why(first))
    stop = _middle(first.text)
    if not stop:
        return Finding(WHAT, "unknown", f"the model said only {shown(first.text)}")
    second = await asker.ask(asker.request(_WORDS, tokens=_TOKENS, stop=(stop,)))
    if second.reply is None:
        return Finding(WHAT, "no", f"refused: {why(second)}")
    if stop in second.text:
        return Finding(WHAT, "no", f"the answer went on behind {stop!r}")
    if not first.text.startswith(second.text.rstrip()):
        return Finding(WHAT, "unknown", "the same question got another answer")
    which = second.reply.stop_sequence == stop
    told = f"{stop!r} ended the answer" + ("" if which else "; which one it was is not told")
    return Finding(WHAT, "yes", told, {"told": which})


def _middle(text: str) -> str:
    """A few characters behind the middle that stand nowhere before."""
    for start in range(len(text) // 2, len(text) - 2):
        piece = text[start : start + 3]
        if piece.strip() == piece and text.index(piece) == start:
            return piece
    return ""
