"""Whether several calls come in one answer, and whether a call's arguments come in pieces."""

from dragoman.backends.probe.context import WEATHER, Subject, why
from dragoman.backends.probe.report import Finding, Verdict


async def measure(subject: Subject) -> Finding:
    """Two things asked for at once."""
    if not subject.is_so("tool calls"):
        return Finding("parallel calls", "unknown", "not asked: no calls come")
    asker = subject.asker
    words = "What is the weather in Paris, and what is it in Rome? Call the tool for both at once."
    heard = await asker.ask(asker.request(words, tools=[WEATHER], before=subject.examples))
    if heard.reply is None:
        return Finding("parallel calls", "unknown", why(heard))
    count = len(heard.calls)
    verdict: Verdict = "yes" if count > 1 else "no" if count else "unknown"
    return Finding("parallel calls", verdict, f"{count or 'no'} call{'s' if count != 1 else ''} came", {"calls": count})


async def measure_deltas(subject: Subject) -> Finding:
    """Of the streamed call that was asked for already."""
    heard = subject.heard.get("streamed call")
    if heard is None or not heard.calls:
        return Finding("argument deltas", "unknown", "no streamed call came")
    if not heard.streamed:
        return Finding("argument deltas", "no", "a whole body came where a stream was asked for")
    pieces = heard.argument_pieces
    told = f"arguments came in {pieces} pieces" if pieces > 1 else "arguments came whole"
    return Finding("argument deltas", "yes" if pieces > 1 else "no", told, {"pieces": pieces})
