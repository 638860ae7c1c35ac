"""Upstream responses that deviate slightly from their API, for each client API, streamed and complete.

A deviation is a change of the usual response, which is text and one call. Each has one outcome, independent of the
client's API: the usual response, perhaps with a warning; another response, which is stated; or an error. Every stream
matches the vendors' own types.
"""

import asyncio
from typing import Any, NamedTuple

import pytest

from dragoman import dialects
from dragoman.core.collect import Collector
from dragoman.core.messages import ToolCall
from support.check_each import check_each
from support.deviations import (
    ARGUMENTS,
    WORDS,
    answered,
    call,
    chat,
    delta,
    done,
    frames,
    message,
    messages,
    over,
    response,
    said,
    validates,
    wide,
)

USUAL = (WORDS, ("read", ARGUMENTS), "tool_calls")
ERROR = "error"


class Deviation(NamedTuple):
    said: str
    """The server's response."""
    outcome: Any = USUAL
    """Text, call and finish reason; or an error."""
    codes: frozenset[str] = frozenset()
    """Warnings, except those about token counts."""


# Chat Completions


ONE = delta({"content": WORDS})
TWO = delta(call())
END = delta({}, "tool_calls")


def cut(*codes: str, words: str = WORDS) -> Any:
    """The outcome of text that ends at a limit, or for an unknown reason."""
    return (words, "length"), frozenset(codes)


def plain(words: str, *codes: str) -> Any:
    return (words, "stop"), frozenset(codes)


EMPTY = plain("", "empty_answer")
CHAT: dict[str, Deviation] = {
    "usual": Deviation(chat(ONE, TWO, END)),
    "comments, no space, mixed line ends": Deviation(
        ": hi\r\n\r\n" + chat(ONE, TWO, END).replace("data: {", "data:{").replace("\n\n", "\r\r", 1)
    ),
    "CR alone ends lines": Deviation(chat(ONE, TWO, END).replace("\n", "\r")),
    "event without data": Deviation("event: chunk\n\n" + chat(ONE, TWO, END)),
    "BOM before a stream": Deviation("\ufeff" + chat(ONE, TWO, END)),
    "BOM before a body": Deviation("\ufeff" + said()),
    "numeric ids": Deviation(chat({**ONE, "id": 7, "created": "x"}, delta(call(id=17)), END)),
    "index as a string": Deviation(chat(ONE, delta(call(index="0")), END)),
    "choice index as a string": Deviation(chat({"choices": [{**ONE["choices"][0], "index": "0"}]}, TWO, END)),
    "index is null, id is missing": Deviation(chat(ONE, delta(call(id=..., index=None)), END)),
    "all that can be null is": Deviation(
        chat(
            {
                **delta({"role": None, "content": WORDS, "tool_calls": None, "refusal": None, "reasoning": None}),
                "usage": None,
                "system_fingerprint": None,
            },
            delta({"content": None, **call()}, logprobs=None),
            {"choices": [], "usage": None},
            END,
        )
    ),
    "choices is null beside usage": Deviation(chat(ONE, {"choices": None, "usage": {"prompt_tokens": 1}}, TWO, END)),
    "empty choices": Deviation(chat({"choices": []}, ONE, {"choices": []}, TWO, END, {"choices": []})),
    "delta is null": Deviation(chat(ONE, delta(None), TWO, delta(None, "tool_calls"))),
    "delta after finish": Deviation(chat(TWO, END, ONE), ((("read", ARGUMENTS), WORDS, "tool_calls"))),
    "role again and again": Deviation(
        chat(delta({"role": "assistant", "content": ""}), delta({"role": "assistant"}), ONE, TWO, END)
    ),
    "arguments as an object": Deviation(chat(ONE, delta(call(arguments={"path": "/tmp/x"})), END)),
    "arguments null, then whole": Deviation(chat(ONE, delta(call(arguments=None)), TWO, END)),
    "content as parts": Deviation(chat(delta({"content": [{"type": "text", "text": WORDS}]}), TWO, END)),
    "content as an object": Deviation(chat(delta({"content": {"text": WORDS}}), TWO, END)),
    "content as strings": Deviation(said(content=[WORDS])),
    "a number for content": Deviation(said(content=7, tool_calls=None, finish_reason="stop"), *plain("7")),
    "tool_calls as an object": Deviation(chat(ONE, delta({"tool_calls": call()["tool_calls"][0]}), END)),
    "finish is empty": Deviation(chat({"choices": [{**ONE["choices"][0], "finish_reason": ""}]}, TWO, END)),
    "finish tool_use": Deviation(chat(ONE, TWO, delta({}, "tool_use"))),
    "finish function_call": Deviation(chat(ONE, TWO, delta({}, "function_call"))),
    "finish stop": Deviation(chat(ONE, TWO, delta({}, "stop"))),
    "finish is a word of its own": Deviation(chat(ONE, TWO, delta({}, "done")), USUAL, frozenset({"unknown_finish"})),
    "finish is true": Deviation(chat(ONE, TWO, delta({}, True)), USUAL, frozenset({"unknown_finish"})),
    "two finishes": Deviation(chat(ONE, TWO, END, delta({}, "stop"))),
    "a limit, then stop": Deviation(chat(ONE, delta({}, "length"), delta({}, "stop")), *cut()),
    "whole without a finish": Deviation(said(finish_reason=None), USUAL, frozenset({"unknown_finish"})),
    "calls are announced, and do not come": Deviation(chat(ONE, END), *plain(WORDS, "unknown_finish")),
    "counts are strings": Deviation(
        chat(ONE, TWO, END, {"choices": [], "usage": {"prompt_tokens": "3", "completion_tokens": "x"}})
    ),
    "counts are beyond all bounds": Deviation(
        chat(ONE, TWO, END, {"choices": [], "usage": {"prompt_tokens": -5, "completion_tokens": 10**26}})
    ),
    "counts are fractions, and lists": Deviation(
        chat(ONE, TWO, END, {"choices": [], "usage": {"prompt_tokens": 1.5, "prompt_tokens_details": [1]}})
    ),
    "usage is a number": Deviation(chat({**ONE, "usage": 3}, TWO, END)),
    "NaN and Infinity": Deviation(
        chat({**ONE, "speed": float("nan")}, {**TWO, "x": [float("-inf"), float("inf")]}, END)
    ),
    "NaN in words stays": Deviation(
        chat({**delta({"content": 'NaN, "Infinity"'}), "speed": float("nan")}, delta({}, "stop")),
        *plain('NaN, "Infinity"'),
    ),
    "reasoning as an object": Deviation(chat(delta({"reasoning": {"content": "hm"}}), ONE, TWO, END), ("hm", *USUAL)),
    "reasoning as parts": Deviation(chat(delta({"reasoning": [{"text": "hm"}]}), ONE, TWO, END), ("hm", *USUAL)),
    "a pair of surrogates is cut": Deviation(
        chat(delta({"content": "é\ud83d"}), delta({"content": "\ude00中"}), delta({}, "stop")), *plain("é😀中")
    ),
    "a pair is cut in thoughts": Deviation(
        chat(delta({"reasoning_content": "\ud83d"}), delta({"reasoning_content": "\ude00"}), ONE, TWO, END),
        ("😀", *USUAL),
    ),
    "a pair is cut in arguments": Deviation(
        chat(ONE, delta(call(arguments='{"path": "\ud83d')), delta(call(id=..., name=..., arguments='\ude00"}')), END),
        (WORDS, ("read", '{"path": "😀"}'), "tool_calls"),
    ),
    "half a pair alone": Deviation(
        chat(delta({"content": "a\ud83d"}), delta({"content": "b"}), delta({}, "stop")),
        *plain("a\ufffdb", "invalid_utf8"),
    ),
    "half a pair at the end": Deviation(
        chat(delta({"content": "a\ud83d"}), delta({}, "stop")), *plain("a\ufffd", "invalid_utf8")
    ),
    "halves in wrong order": Deviation(
        chat(delta({"content": "\ude00\ud83d"}), delta({}, "stop")), *plain("\ufffd\ufffd", "invalid_utf8")
    ),
    # Truncated, and not reported as complete
    "DONE without a finish": Deviation(chat(ONE), *cut("unknown_finish")),
    "DONE behind a whole call": Deviation(chat(ONE, TWO), USUAL, frozenset({"unknown_finish"})),
    "a line error:": Deviation(
        chat(ONE, done='error: {"code":500,"message":"context shift"}\n\ndata: [DONE]\n\n'), ERROR
    ),
    "a line error: of words": Deviation(chat(ONE, done="error: out of memory\n\ndata: [DONE]\n\n"), ERROR),
    "event error": Deviation(chat(ONE, done='event: error\ndata: {"message":"out of memory"}\n\n'), ERROR),
    "an error of bare members": Deviation(chat(ONE, '{"code":500,"message":"out of memory"}'), ERROR),
    "error in x_groq": Deviation(chat(ONE, {"choices": [], "x_groq": {"error": "over_capacity"}}), ERROR),
    "error in a choice": Deviation(chat(ONE, delta({}, None, error={"code": 502, "message": "gone"})), ERROR),
    "finish error": Deviation(chat(ONE, delta({}, "error")), ERROR),
    "no end": Deviation(chat(ONE, done=""), ERROR),
    "error is empty": Deviation(chat({**ONE, "error": ""}, TWO, {**END, "error": {}})),
    # Success without content
    "DONE alone": Deviation(chat(), ERROR),
    "an empty object": Deviation("{}", ERROR),
    "an empty body": Deviation("", ERROR),
    "null": Deviation("null", ERROR),
    "a list": Deviation("[]", ERROR),
    "a page": Deviation("<html>Sign in</html>", ERROR),
    "no choices": Deviation('{"id":"x","choices":[]}', ERROR),
    "choices is null": Deviation('{"id":"x","choices":null,"usage":{"prompt_tokens":3}}', ERROR),
    "no choice in a stream": Deviation(chat({"choices": [], "usage": {"prompt_tokens": 3}}), ERROR),
    "an empty answer": Deviation(chat(delta({"content": ""}), delta({}, "stop")), *EMPTY),
    "an empty answer, whole": Deviation(said(content="", tool_calls=None, finish_reason="stop"), *EMPTY),
    "a call without a name": Deviation(chat(ONE, delta(call(name=...)), END), ERROR),
}


# Messages


def untyped(*frames: Any) -> str:
    """Events without `type` in their data; only the event name contains it."""
    return "".join(f"event: {f['type']}\ndata: {wide({k: v for k, v in f.items() if k != 'type'})}\n\n" for f in frames)


def block(index: Any, **said: Any) -> dict[str, Any]:
    return {"type": "content_block_start", "index": index, "content_block": said}


def piece(index: Any, **said: Any) -> dict[str, Any]:
    return {"type": "content_block_delta", "index": index, "delta": said}


def text(words: str, index: Any = 0) -> list[dict[str, Any]]:
    return [block(index, type="text", text=""), piece(index, type="text_delta", text=words), stop(index)]


def stop(index: Any) -> dict[str, Any]:
    return {"type": "content_block_stop", "index": index}


def use(*pieces: str, id: Any = "toolu_1", index: Any = 1, input: Any = None) -> list[dict[str, Any]]:
    begun = block(index, type="tool_use", id=id, name="read", input={} if input is None else input)
    return [begun, *(piece(index, type="input_json_delta", partial_json=each) for each in pieces), stop(index)]


BEGIN = {"type": "message_start", "message": {"id": "x", "content": [], "usage": {"input_tokens": 3}}}
STREAM = [BEGIN, *text(WORDS), *use(ARGUMENTS), *over()]
USE = {"type": "tool_use", "id": "toolu_1", "name": "read", "input": {"path": "/tmp/x"}}
TEXT = {"type": "text", "text": WORDS}


MESSAGES: dict[str, Deviation] = {
    "usual": Deviation(messages(*STREAM)),
    "whole": Deviation(message(TEXT, USE)),
    "no names of events": Deviation(messages(*STREAM, names=False)),
    "no types in the JSON": Deviation(untyped(*STREAM)),
    "no types of blocks and deltas": Deviation(
        messages(
            BEGIN,
            block(0, text=""),
            piece(0, text=WORDS),
            stop(0),
            block(1, id="toolu_1", name="read", input={}),
            piece(1, partial_json=ARGUMENTS),
            stop(1),
            *over(),
        )
    ),
    "CR alone ends lines": Deviation(messages(*STREAM).replace("\n", "\r")),
    "BOM before a body": Deviation("\ufeff" + message(TEXT, USE)),
    "numeric ids": Deviation(messages(BEGIN, *text(WORDS), *use(ARGUMENTS, id=17), *over())),
    "index as a string": Deviation(messages(BEGIN, *text(WORDS, "0"), *use(ARGUMENTS, index="1"), *over())),
    "index is null": Deviation(messages(BEGIN, *text(WORDS, None), *use(ARGUMENTS, index=None), *over())),
    "no message in the start": Deviation(messages({"type": "message_start"}, *STREAM[1:])),
    "the start comes twice": Deviation(messages(BEGIN, BEGIN, *STREAM[1:])),
    "a block starts twice": Deviation(messages(BEGIN, block(0, type="text", text=""), *STREAM[1:])),
    "no start of a text": Deviation(messages(BEGIN, *STREAM[2:])),
    "content_block is null": Deviation(messages(BEGIN, {"type": "content_block_start", "index": 0}, *STREAM[2:])),
    "delta is null": Deviation(
        messages(BEGIN, {"type": "content_block_delta", "index": 0, "delta": None}, *STREAM[1:])
    ),
    "input as a string of JSON": Deviation(message(TEXT, {**USE, "input": ARGUMENTS})),
    "input as a string of JSON, streamed": Deviation(messages(BEGIN, *text(WORDS), *use(input=ARGUMENTS), *over())),
    "input is null": Deviation(messages(BEGIN, *text(WORDS), *use(ARGUMENTS, input=None), *over())),
    "content is a string": Deviation(wide({"content": WORDS, "stop_reason": "end_turn"}), *plain(WORDS)),
    "blocks are null": Deviation(message(None, TEXT, None, USE)),
    "counts are strings": Deviation(messages(*STREAM[:-2], *over(usage={"output_tokens": "5", "input_tokens": "x"}))),
    "counts are beyond all bounds": Deviation(
        messages(*STREAM[:-2], *over(usage={"output_tokens": -5, "input_tokens": 1e30}))
    ),
    "usage is a list": Deviation(messages(*STREAM[:-2], *over(usage=[1]))),
    "NaN": Deviation(message(TEXT, USE, speed=float("nan"))),
    "reason end_turn": Deviation(messages(*STREAM[:-2], *over("end_turn"))),
    "reason is a word of its own": Deviation(
        messages(*STREAM[:-2], *over("done")), USUAL, frozenset({"unknown_finish"})
    ),
    "reason is a number": Deviation(messages(*STREAM[:-2], *over(7)), USUAL, frozenset({"unknown_finish"})),
    "no reason": Deviation(messages(*STREAM[:-2], {"type": "message_stop"}), USUAL, frozenset({"unknown_finish"})),
    "two reasons": Deviation(messages(BEGIN, *text(WORDS), over("max_tokens")[0], *over("end_turn")), *cut()),
    "more behind the end": Deviation(messages(*STREAM, *text("more"))),
    "a pair of surrogates is cut": Deviation(
        messages(
            BEGIN,
            block(0, type="text", text=""),
            piece(0, type="text_delta", text="é\ud83d"),
            piece(0, type="text_delta", text="\ude00中"),
            *over("end_turn"),
        ),
        *plain("é😀中"),
    ),
    "a pair is cut in arguments": Deviation(
        messages(BEGIN, *text(WORDS), *use('{"path": "\ud83d', '\ude00"}'), *over()),
        (WORDS, ("read", '{"path": "😀"}'), "tool_calls"),
    ),
    "half a pair alone": Deviation(
        messages(BEGIN, *text("a\ud83d"), *over("end_turn")), *plain("a\ufffd", "invalid_utf8")
    ),
    "DONE without a reason": Deviation(messages(BEGIN, *text(WORDS)) + "data: [DONE]\n\n", *cut("unknown_finish")),
    "no end": Deviation(messages(BEGIN, *text(WORDS)), ERROR),
    "no start of a call": Deviation(
        messages(BEGIN, *text(WORDS), piece(1, type="input_json_delta", partial_json=ARGUMENTS), *over()), ERROR
    ),
    "a line error:": Deviation(messages(BEGIN, *text(WORDS)) + 'error: {"message":"gone"}\n\n', ERROR),
    "an error without its object": Deviation(
        messages(BEGIN, *text(WORDS)) + 'event: error\ndata: {"type":"error","message":"gone"}\n\n', ERROR
    ),
    "the end alone": Deviation(messages({"type": "message_stop"}), ERROR),
    "an empty object": Deviation("{}", ERROR),
    "content is null": Deviation(wide({"type": "message", "content": None, "stop_reason": "end_turn"}), ERROR),
    "of another API": Deviation(said(), ERROR),
    "an empty answer": Deviation(messages(BEGIN, *over("end_turn")), *EMPTY),
    "an empty answer, whole": Deviation(message(reason="end_turn"), *EMPTY),
}


# Responses


def responses(*frames: Any, **more: Any) -> str:
    return messages(*frames, **more)


def item(kind: str, index: Any = 0, **said: Any) -> dict[str, Any]:
    return {"type": f"response.output_item.{kind}", "output_index": index, "item": said}


def words(*pieces: str) -> list[dict[str, Any]]:
    shell = {"id": "msg_1", "type": "message", "role": "assistant"}
    deltas = [{"type": "response.output_text.delta", "item_id": "msg_1", "output_index": 0, "delta": p} for p in pieces]
    return [item("added", **shell, content=[]), *deltas, item("done", **shell, content=parts("".join(pieces)))]


def parts(said: str) -> list[Any]:
    return [{"type": "output_text", "text": said, "annotations": []}]


CALL = {"id": "fc_1", "type": "function_call", "call_id": "call_1", "name": "read"}
TEXTS = words(WORDS)
CALLS = [item("added", 1, **CALL, arguments=""), item("done", 1, **CALL, arguments=ARGUMENTS)]
OUTPUT = [
    {"id": "msg_1", "type": "message", "role": "assistant", "content": parts(WORDS)},
    {**CALL, "arguments": ARGUMENTS},
]
CREATED = {"type": "response.created", "response": {"id": "resp_x", "status": "in_progress"}}


RESPONSES: dict[str, Deviation] = {
    "usual": Deviation(responses(CREATED, *TEXTS, *CALLS, done(output=OUTPUT))),
    "whole": Deviation(response(*OUTPUT)),
    "no types in the JSON": Deviation(untyped(CREATED, *TEXTS, *CALLS, done(output=OUTPUT))),
    "no types of items": Deviation(
        response({"content": parts(WORDS)}, {"call_id": "call_1", "name": "read", "arguments": ARGUMENTS})
    ),
    "CR alone ends lines": Deviation(responses(CREATED, *TEXTS, *CALLS, done(output=OUTPUT)).replace("\n", "\r")),
    "BOM before a body": Deviation("\ufeff" + response(*OUTPUT)),
    "created twice": Deviation(responses(CREATED, CREATED, *TEXTS, *CALLS, done())),
    "numeric ids": Deviation(response(OUTPUT[0], {**OUTPUT[1], "call_id": 17, "id": 3})),
    "index as a string": Deviation(responses(CREATED, *TEXTS, item("done", "1", **CALL, arguments=ARGUMENTS), done())),
    "arguments as an object": Deviation(response(OUTPUT[0], {**OUTPUT[1], "arguments": {"path": "/tmp/x"}})),
    "the name comes with the arguments": Deviation(
        responses(
            CREATED,
            *TEXTS,
            {
                "type": "response.function_call_arguments.done",
                "item_id": "fc_1",
                "output_index": 1,
                "name": "read",
                "arguments": ARGUMENTS,
            },
            done(),
        )
    ),
    "response is null": Deviation(responses(CREATED, *TEXTS, *CALLS, {"type": "response.completed", "response": None})),
    "output is null behind items": Deviation(responses(CREATED, *TEXTS, *CALLS, done(output=None))),
    "items are null": Deviation(response(None, *OUTPUT)),
    "item is null": Deviation(
        responses(CREATED, {"type": "response.output_item.added", "item": None}, *TEXTS, *CALLS, done())
    ),
    "content is a string": Deviation(response({**OUTPUT[0], "content": WORDS}, OUTPUT[1])),
    "content is strings": Deviation(response({**OUTPUT[0], "content": [WORDS]}, OUTPUT[1])),
    "counts are strings": Deviation(response(*OUTPUT, usage={"input_tokens": "3", "output_tokens": "x"})),
    "counts are beyond all bounds": Deviation(response(*OUTPUT, usage={"input_tokens": -3, "output_tokens": 10**26})),
    "usage is a list": Deviation(response(*OUTPUT, usage=[3])),
    "NaN": Deviation(response(*OUTPUT, speed=float("nan"))),
    "status is missing": Deviation(response(*OUTPUT, status=None)),
    "more behind the end": Deviation(responses(CREATED, *TEXTS, *CALLS, done(), *words("more"))),
    "a pair of surrogates is cut": Deviation(
        responses(CREATED, *words("é\ud83d", "\ude00中"), done()), *plain("é😀中")
    ),
    "half a pair alone": Deviation(responses(CREATED, *words("a\ud83d"), done()), *plain("a\ufffd", "invalid_utf8")),
    "in progress, and whole": Deviation(response(OUTPUT[0], status="in_progress"), *cut("unknown_finish")),
    "DONE without its last event": Deviation(responses(CREATED, *TEXTS) + "data: [DONE]\n\n", *cut("unknown_finish")),
    "no end": Deviation(responses(CREATED, *TEXTS), ERROR),
    "a line error:": Deviation(responses(CREATED, *TEXTS) + 'error: {"message":"gone"}\n\n', ERROR),
    "failed": Deviation(
        responses(CREATED, *TEXTS, done("failed", error={"code": "server_error", "message": "gone"})), ERROR
    ),
    "failed, and does not say why": Deviation(responses(CREATED, *TEXTS, done("failed")), ERROR),
    "a call without a name": Deviation(response(OUTPUT[0], {**OUTPUT[1], "name": None}), ERROR),
    "queued": Deviation(response(status="queued"), ERROR),
    "output is null": Deviation(wide({"status": "completed", "output": None}), ERROR),
    "an empty object": Deviation("{}", ERROR),
    "nothing but its end": Deviation(responses(CREATED, done()), ERROR),
    "an empty answer": Deviation(responses(CREATED, done(output=[])), *EMPTY),
    "an empty answer, whole": Deviation(response(), *EMPTY),
}

ALL = {"openai_chat": CHAT, "anthropic_messages": MESSAGES, "openai_responses": RESPONSES}
USAGE_CODES = frozenset({"estimated_usage"})


def outcome(collector: Collector) -> tuple[Any, ...]:
    """The content in order, and the finish reason."""
    reply = collector.reply()
    told = [(p.name, p.arguments) if isinstance(p, ToolCall) else p.text for p in reply.parts]  # type: ignore[union-attr]
    return (*(told or [""]), reply.finish_reason)


@pytest.mark.parametrize("api", ALL)
def test_deviation_has_stated_outcome_for_every_client_api(api: str, subtests: pytest.Subtests) -> None:
    check_each(subtests, ALL[api], lambda name: asyncio.run(check_outcome(api, ALL[api][name])))


async def check_outcome(api: str, deviation: Deviation) -> None:
    said = deviation.said.encode("utf-8", "surrogatepass")
    for front in dialects.names():
        for stream in (True, False):
            got = await answered(api, front, said, stream=stream)
            codes = {warning.code for warning in got.collector.warnings} - USAGE_CODES
            if deviation.outcome == ERROR:
                assert got.error is not None, outcome(got.collector)
            else:
                assert got.error is None
                assert (outcome(got.collector), codes) == (deviation.outcome, deviation.codes)
            for frame in frames(got.stream):
                validates(front)(frame)
