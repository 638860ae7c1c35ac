"""How streams are written: what a strict client would trip over. Dragoman reads all of it (wire/call_assembly)."""

from collections.abc import Iterator
from typing import Any

from dragoman.backends.probe.client import ProbeAnswer
from dragoman.backends.probe.context import GREETING, ProbeContext, failure_reason, failure_verdict
from dragoman.backends.probe.report import ProbeFinding


async def check_streams(context: ProbeContext) -> ProbeFinding:
    """Of an answer in words, and of the streamed call that was asked for already."""
    client = context.client
    answer = context.answers["streamed greeting"] = await client.ask(client.request(GREETING, stream=True))
    if answer.reply is None:
        return ProbeFinding("streams", failure_verdict(answer), failure_reason(answer))
    if not answer.streamed:
        return ProbeFinding("streams", "no", "a whole body came where a stream was asked for")
    call = context.answers.get("streamed call", ProbeAnswer())
    odd = list(dict.fromkeys((*deviations(answer), *(deviations(call) if call.reply else ()))))
    summary = f"{len(answer.frames)} events; {'; '.join(odd) if odd else 'nothing odd'}"
    return ProbeFinding("streams", "partly" if odd else "yes", summary, {"odd": odd, "events": len(answer.frames)})


def deviations(answer: ProbeAnswer) -> Iterator[str]:
    """What is not as Chat Completions has it; of a stream of another API nothing is said."""
    chunks = [frame for frame in answer.frames if isinstance(frame.get("choices"), list)]
    if not chunks:
        return
    objects = {frame.get("object") for frame in chunks} - {"chat.completion.chunk"}
    yield from (f"object is {value!r}" for value in sorted(map(str, objects)))
    if len({frame.get("id") for frame in chunks}) > 1:
        yield "the id changes"
    if not answer.has_done:
        yield "no [DONE]"
    choices = [choice for frame in chunks for choice in frame["choices"] if isinstance(choice, dict)]
    reasons = [choice["finish_reason"] for choice in choices if choice.get("finish_reason")]
    if len(reasons) != 1:
        yield "no finish_reason" if not reasons else f"{len(reasons)} finish reasons"
    if answer.calls and "tool_calls" not in reasons:
        yield f"finish_reason {', '.join(map(repr, reasons)) or None} with calls"
    yield from _call_deviations([call for choice in choices for call in _call_deltas(choice)])


def _call_deltas(choice: dict[str, Any]) -> list[dict[str, Any]]:
    delta = choice.get("delta") or choice.get("message") or {}
    pieces = delta.get("tool_calls") if isinstance(delta, dict) else None
    return [piece for piece in pieces or () if isinstance(piece, dict)]


def _call_deviations(pieces: list[dict[str, Any]]) -> Iterator[str]:
    if not pieces:
        return
    if any(not isinstance(piece.get("index"), int) for piece in pieces):
        yield "calls without index"
    ids = [piece.get("id") for piece in pieces]
    if not any(ids):
        yield "calls without id"
    elif len({id for id in ids if id}) < sum(bool(id) for id in ids):
        yield "ids repeated in each piece"
    functions = [piece["function"] for piece in pieces if isinstance(piece.get("function"), dict)]
    kinds = {type(function.get("arguments")) for function in functions if "arguments" in function}
    if dict in kinds:
        yield "arguments are an object"
    if type(None) in kinds:
        yield "arguments are null"
