"""One message and its answer: text on standard input becomes part of the message, `--json` prints one object."""

import json
import re
import sys
from typing import Any, Final

from dragoman.cli.chat import conversation as messages
from dragoman.cli.chat.conversation import ChatConversation
from dragoman.cli.chat.exchange import Answer, ChatExchange
from dragoman.cli.chat.model_session import ModelSession
from dragoman.cli.chat.reply_view import ReplyView
from dragoman.cli.chat.toolbox import result_text
from dragoman.core.errors import ConfigError
from dragoman.core.messages import Reasoning

_FENCE: Final = re.compile(r"`{3,}")


def read_message(prompt: str) -> str:
    """Returns the message: the prompt, then the text on standard input in a block of its own.

    Raises:
        ConfigError: There is neither a prompt nor a text, or standard input has binary data.
    """
    data = b"" if sys.stdin is None or sys.stdin.isatty() else sys.stdin.buffer.read()
    if b"\0" in data:
        raise ConfigError("expected text on standard input, got binary data; --image PATH sends an image")
    text = data.decode("utf-8", "replace").strip("\n")
    if not (prompt or text.strip()):
        raise ConfigError("expected PROMPT or text on standard input, got neither")
    return with_input(prompt, text) if text.strip() else prompt


def with_input(prompt: str, text: str) -> str:
    """Returns a message with the text in a fenced block, whose fence does not occur in the text."""
    if not prompt:
        return text
    longest = max((len(fence) for fence in _FENCE.findall(text)), default=2)
    fence = "`" * (longest + 1)
    return f"{prompt}\n\nText from standard input:\n\n{fence}\n{text}\n{fence}"


def answer_once(
    exchange: ChatExchange, conversation: ChatConversation, session: ModelSession, view: ReplyView, *, as_json: bool
) -> int:
    """Prints the answer to the only message, and returns the exit status.

    Args:
        exchange: Generates the answer.
        conversation: Has the message.
        session: The model.
        view: Has shown the text already, unless the look is silent.
        as_json: Whether an object is printed.

    Raises:
        DragomanError: There is no answer.
    """
    answer = exchange.answer(conversation, session.gateway, session.model)
    if answer.stopped:
        return 130
    if as_json:
        print(json.dumps(_as_object(answer, session.model, view), ensure_ascii=False, indent=2))
    if not messages.text(answer.parts).strip():
        view.error("the model's answer is empty; try another model, or ask in other words")
        return 1
    if answer.finish_reason == "length":
        view.warn("the reply was cut at the limit of its length")
    return 0


def _as_object(answer: Answer, model: str, view: ReplyView) -> dict[str, Any]:
    usage = answer.usage
    reasoning = "".join(part.text for part in answer.parts if isinstance(part, Reasoning))
    return {
        "model": model,
        "text": messages.text(answer.parts),
        **({"reasoning": reasoning} if reasoning else {}),
        "calls": [
            {
                "name": each.call.name,
                "arguments": _arguments(each.call.arguments),
                "was_run": each.was_run,
                "is_error": each.result.is_error,
                "result": result_text(each.result),
            }
            for each in answer.calls
        ],
        "finish_reason": answer.finish_reason,
        "usage": {
            "input_tokens": usage.input_tokens,
            "cached_input_tokens": usage.cached_input_tokens,
            "output_tokens": usage.output_tokens,
            "reasoning_tokens": usage.reasoning_tokens,
            "cost_usd": usage.cost_usd,
        },
        "warnings": view.warnings,
    }


def _arguments(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text
