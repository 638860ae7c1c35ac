"""Whether tools come back as tool calls: whole and streamed; and where not, what became of them.

    a call left in the text            the server shows the model its tools, and does not read what it writes
    a prompt as long as without tools  the server, or its template, drops them
    a longer prompt, and no call       the model was shown them, and did not want to
    refused                            in the server's words

A model that was shown the tools and made no call is re-asked, after two examples.
"""

from typing import Final

from msgspec.structs import replace

from dragoman import formats
from dragoman.backends.probe.client import ProbeAnswer
from dragoman.backends.probe.context import (
    ASKS_FOR_TOOL,
    CLOCK,
    EXAMPLES,
    GREETING,
    WEATHER,
    ProbeContext,
    failure_reason,
    quote_line,
)
from dragoman.backends.probe.detect_format import find_leaked_call, has_call, started_calls
from dragoman.backends.probe.report import ProbeFinding, Verdict
from dragoman.core.messages import Message, Text, ToolChoice
from dragoman.parsing.format import Format
from dragoman.prompting.chat_renderer import render_chat


async def check_tool_calls(context: ProbeContext) -> ProbeFinding:
    """One clear question with one tool, twice."""
    finding = await _request_call(context, ())
    if finding.verdict != "unknown" or not finding.facts.get("shown"):
        return finding
    second = await _request_call(context, EXAMPLES)
    if second.verdict == "unknown" or second.facts.get("refused"):
        return finding
    return ProbeFinding(
        "tool calls", second.verdict, f"after two examples: {second.text}", {**second.facts, "examples": True}
    )


async def _request_call(context: ProbeContext, before: tuple[Message, ...]) -> ProbeFinding:
    client = context.client
    request = client.request(ASKS_FOR_TOOL, tools=[WEATHER], before=before)
    unstreamed = context.answers["call"] = await client.ask(request)
    streamed = context.answers["streamed call"] = await client.ask(replace(request, stream=True, stream_usage=True))
    answers_with_call = {
        name: answer for name, answer in (("whole", unstreamed), ("streamed", streamed)) if _has_call(answer)
    }
    if len(answers_with_call) == 2:
        call = unstreamed.calls[0]
        return ProbeFinding(
            "tool calls", "yes", f"{call.name}({call.arguments}), whole and streamed", {"whole": True, "streamed": True}
        )
    other = streamed if "whole" in answers_with_call else unstreamed
    missing = await _explain_missing_call(context, other, before)
    if answers_with_call:
        name = next(iter(answers_with_call))
        facts = {"whole": "whole" in answers_with_call, "streamed": "streamed" in answers_with_call, **missing.facts}
        return ProbeFinding("tool calls", "partly", f"{name} only; else {missing.text}", facts)
    return missing


def _has_call(answer: ProbeAnswer) -> bool:
    return any(call.name == WEATHER.name for call in answer.calls)


async def _explain_missing_call(
    context: ProbeContext, answer: ProbeAnswer, before: tuple[Message, ...]
) -> ProbeFinding:
    """What became of the tools."""
    if answer.reply is None:
        is_rejected = getattr(answer.error, "status", None) in (400, 404, 405, 422, 500, 501)
        facts = {"refused": True} if is_rejected else {}
        return ProbeFinding("tool calls", "no" if is_rejected else "unknown", failure_reason(answer), facts)
    for text, where in ((answer.text, "text"), (answer.reasoning, "reasoning")):
        if (leaked := find_leaked_call(text, [WEATHER], context.model)) is not None:
            notation = f"in the format {leaked.format}" if leaked.tagged else "as JSON without the format's tags"
            reason = f"the call is left in the {where}, {notation}: {quote_line(text)}"
            return ProbeFinding(
                "tool calls",
                "no",
                reason,
                {"leaked": leaked.format, "tagged": leaked.tagged, "by_name": leaked.by_name, "in": where},
            )
    if answer.is_truncated and not answer.text:
        return ProbeFinding("tool calls", "unknown", f"it was still thinking after {answer.usage.output_tokens} tokens")
    plain = await context.client.ask(context.client.request(ASKS_FOR_TOOL, tokens=1, before=before))
    more = answer.usage.input_tokens - plain.usage.input_tokens
    if plain.reply is not None and plain.usage.input_tokens and more <= 0:
        longer = await context.client.ask(context.client.request(ASKS_FOR_TOOL, tokens=1, before=(*before, *EXAMPLES)))
        if longer.usage.input_tokens <= plain.usage.input_tokens:
            summary = f"{plain.usage.input_tokens} prompt tokens are reported for every prompt, so they say nothing"
            return ProbeFinding(
                "tool calls", "unknown", f"{summary}; the model wrote {quote_line(answer.text)}", {"shown": True}
            )
        reason = f"dropped: the prompt has {answer.usage.input_tokens} tokens with tools and without"
        return ProbeFinding("tool calls", "no", reason, {"dropped": True})
    evidence = f"it was shown the tools ({more} tokens)" if plain.usage.input_tokens else "no call came"
    return ProbeFinding(
        "tool calls", "unknown", f"{evidence}; the model wrote {quote_line(answer.text)}", {"shown": more > 0}
    )


_FALLBACK_FORMAT: Final = "pythonic"
"""What the smallest models copy best: SmolLM2 135M repeats a result in place of a call in the format of Hermes."""


async def check_prompted_calls(context: ProbeContext) -> ProbeFinding:
    """Only of use where the server's own calls do not come."""
    tools = context.findings["tool calls"]
    if tools.verdict in ("yes", "partly") or "leaked" in tools.facts:
        return ProbeFinding("prompted calls", "unknown", "not asked: tools reach the model")
    own = formats.get(context.findings["chat template"].facts["format"])
    first = await _ask_prompted(context, own, ())
    if first.reply is None:
        return ProbeFinding("prompted calls", "unknown", failure_reason(first))
    if has_call(first.text, own, [WEATHER]):
        return ProbeFinding(
            "prompted calls", "yes", f"the model wrote a call, in the format {own.name}", {"format": own.name}
        )
    for name in dict.fromkeys((own.name, _FALLBACK_FORMAT)):
        answer = await _ask_prompted(context, formats.get(name), EXAMPLES)
        if has_call(answer.text, formats.get(name), [WEATHER]):
            summary = f"after two examples the model wrote a call, in the format {name}"
            return ProbeFinding("prompted calls", "yes", summary, {"format": name, "examples": True})
    return ProbeFinding("prompted calls", "no", f"the model wrote {quote_line(first.text)}", {"format": own.name})


async def _ask_prompted(context: ProbeContext, format: Format, before: tuple[Message, ...]) -> ProbeAnswer:
    client = context.client
    turns = render_chat(client.request(ASKS_FOR_TOOL, tools=[WEATHER], before=before), format)
    messages = tuple(Message(turn.role, (Text(turn.text),)) for turn in turns)
    return await client.ask(replace(client.request(""), messages=messages))


async def check_parallel_calls(context: ProbeContext) -> ProbeFinding:
    """Two things asked for at once."""
    if not context.holds("tool calls"):
        return ProbeFinding("parallel calls", "unknown", "not asked: no calls come")
    client = context.client
    prompt = "What is the weather in Paris, and what is it in Rome? Call the tool for both at once."
    answer = await client.ask(client.request(prompt, tools=[WEATHER], before=context.examples))
    if answer.reply is None:
        return ProbeFinding("parallel calls", "unknown", failure_reason(answer))
    count = len(answer.calls)
    verdict: Verdict = "yes" if count > 1 else "no" if count else "unknown"
    return ProbeFinding(
        "parallel calls", verdict, f"{count or 'no'} call{'s' if count != 1 else ''} came", {"calls": count}
    )


async def check_argument_deltas(context: ProbeContext) -> ProbeFinding:
    """Of the streamed call that was asked for already."""
    answer = context.answers.get("streamed call")
    if answer is None or not answer.calls:
        return ProbeFinding("argument deltas", "unknown", "no streamed call came")
    if not answer.streamed:
        return ProbeFinding("argument deltas", "no", "a whole body came where a stream was asked for")
    pieces = answer.argument_deltas
    summary = f"arguments came in {pieces} pieces" if pieces > 1 else "arguments came whole"
    return ProbeFinding("argument deltas", "yes" if pieces > 1 else "no", summary, {"pieces": pieces})


async def check_tool_choice(context: ProbeContext) -> ProbeFinding:
    """Required where nothing is to be called, a named tool that is not the fitting one, none where one is asked for."""
    tools = context.findings["tool calls"]
    if tools.verdict == "no" and not tools.facts.get("leaked"):
        return ProbeFinding("tool_choice", "unknown", "not asked: the server takes no tools")
    client = context.client
    required = await client.ask(client.request(GREETING, tools=[WEATHER], choice=ToolChoice("required")))
    named = await client.ask(
        client.request(
            ASKS_FOR_TOOL, tools=[WEATHER, CLOCK], choice=ToolChoice("named", CLOCK.name), before=context.examples
        )
    )
    none = await client.ask(
        client.request(ASKS_FOR_TOOL, tools=[WEATHER], choice=ToolChoice("none"), before=context.examples)
    )
    facts = {
        "required": _outcome(required, bool(_called_names(required, context))),
        "named": _outcome(named, set(_called_names(named, context)) == {CLOCK.name}),
        "none": _outcome(none, not none.calls and find_leaked_call(none.text, [WEATHER], context.model) is None),
    }
    if all(answer.reply is None for answer in (required, named, none)):
        return ProbeFinding("tool_choice", "unknown", failure_reason(required), facts)
    outcomes = list(facts.values())
    verdict: Verdict = "yes" if all(each == "yes" for each in outcomes) else "partly" if "yes" in outcomes else "no"
    return ProbeFinding(
        "tool_choice", verdict, ", ".join(f"{form} {outcome}" for form, outcome in facts.items()), facts
    )


def _called_names(answer: ProbeAnswer, context: ProbeContext) -> tuple[str, ...]:
    """Names of the tools that were called; a call that the limit on tokens cut comes as text, and counts too."""
    if answer.calls or not answer.is_truncated:
        return tuple(call.name for call in answer.calls)
    return started_calls(answer.text, [WEATHER, CLOCK], context.model)


def _outcome(answer: ProbeAnswer, is_honoured: bool) -> str:
    if answer.reply is None:
        return "refused"
    return "yes" if is_honoured else "no"
