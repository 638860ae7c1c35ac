"""What is shown of an exchange, and the plain view, which prints line by line for pipes and narrow terminals."""

from typing import NamedTuple, Protocol, TextIO

from dragoman.cli._terminal import printable
from dragoman.core.events import (
    AnyEvent,
    BlockChange,
    Failure,
    Notice,
    ReasoningDelta,
    RefusalDelta,
    TextDelta,
    ToolCallDelta,
    ToolCallEnd,
    ToolCallIncomplete,
    ToolCallStart,
    VendorBlock,
)
from dragoman.core.messages import FinishReason


class Head(NamedTuple):
    """The question and the model."""

    model: str
    where: str
    """The backend and its tool mode."""
    question: str
    tools: tuple[str, ...]
    """Signatures of the tools, such as `get_weather(city: string)`."""
    choice: str


class Totals(NamedTuple):
    """The totals of an exchange."""

    turns: int
    input_tokens: int
    output_tokens: int
    cost_usd: float | None
    seconds: float
    first_s: float | None
    """Seconds to the first token."""

    def summary(self) -> str:
        """Returns the totals in one line."""
        turns = f"{self.turns} turn{'s' * (self.turns > 1)}"
        tokens = f"{self.input_tokens:,} tokens in, {self.output_tokens:,} out"
        first = "" if self.first_s is None else f", {self.first_s:.1f} s to the first token"
        cost = "" if self.cost_usd is None else f" · ${self.cost_usd:.4f}"
        return f"{turns} · {tokens} · {self.seconds:.1f} s{first}{cost}"


class View(Protocol):
    """Shows an exchange while it happens."""

    def begin(self, head: Head) -> None:
        """Shows the question."""

    def begin_turn(self) -> None:
        """A request to the model begins."""

    def begin_reask(self) -> None:
        """The model is re-asked, which the client does not see."""

    def feed_raw(self, text: str) -> None:
        """The model wrote this text."""

    def feed(self, event: AnyEvent, step: BlockChange) -> None:
        """The client receives this event; `step` says which block it opens or closes."""

    def end_turn(self, reason: FinishReason) -> None:
        """The response is complete."""

    def show_result(self, name: str, arguments: str, result: str) -> None:
        """A tool was called with this result."""

    def close(self) -> None:
        """The turn is over, also after an error."""

    def show_totals(self, sum: Totals) -> None:
        """Shows the totals."""


def notice_text(event: AnyEvent) -> tuple[str, str]:
    """Returns the text and the style of an event without model text; ("", "") for most."""
    match event:
        case ToolCallEnd(_, repairs, valid, reasked):
            schema_texts = {
                True: "complete, valid",
                False: "complete, invalid",
                None: "complete",
            }
            more = [f"repaired: {', '.join(repairs)}"] * bool(repairs) + ["re-asked"] * reasked
            return "; ".join([schema_texts[valid], *more]), "wrong" if valid is False else "right"
        case ToolCallIncomplete():
            return "incomplete: do not run it", "wrong"
        case Notice(code, message):
            return f"{code}: {message}", "warning"
        case Failure(error):
            return str(error), "wrong"
        case _:
            return "", ""


def event_text(event: AnyEvent) -> tuple[str, str]:
    """Returns the text that an event adds to the response, and its style."""
    match event:
        case TextDelta(text) | RefusalDelta(text):
            return text, "text"
        case ReasoningDelta(text):
            return text, "thought"
        case ToolCallStart(_, _, name):
            return f"{name} ", "name"
        case ToolCallDelta(_, text):
            return text, "arguments"
        case VendorBlock(_, _, json):
            return json, "arguments"
        case _:
            return "", ""


class PlainView:
    """Prints the model's text as it arrives, then what the client receives."""

    def __init__(self, out: TextIO) -> None:
        self._out = out
        self._output: list[str] = []
        """What the client receives, with remarks; printed after the model's text."""
        self._text = ""
        """The same without remarks."""
        self._notices: list[str] = []
        """The remarks."""
        self._raw: list[str] = []
        """The model's text of this response."""
        self._line_open = False

    def begin(self, head: Head) -> None:
        """Prints the question."""
        tools = ", ".join(head.tools) or "none"
        self._print(f"model: {head.model}, of {head.where}\nasked: {head.question}\ntools: {tools}")
        self._print(f"choice: {head.choice}")

    def begin_turn(self) -> None:
        """Prints a title above the model's text."""
        self._print("\n-- model's text")

    def begin_reask(self) -> None:
        """Prints a title for the second attempt."""
        self._close_line()
        self._raw.clear()
        self._print("-- re-asked; model's text")

    def feed_raw(self, text: str) -> None:
        """Prints the text as it arrives."""
        printed = printable(text)
        self._raw.append(text)
        self._out.write(printed)
        self._out.flush()
        self._line_open = not printed.endswith("\n") if printed else self._line_open

    def feed(self, event: AnyEvent, step: BlockChange) -> None:
        """Stores the event for printing after the model's text."""
        text, notice = event_text(event)[0], notice_text(event)[0]
        if (step.opens or notice) and self._output:
            self._output.append("\n")
        self._output += [text, f"  ({notice})" if notice else ""]
        self._text += text
        self._notices += [f"\n  ({notice})"] if notice else []

    def end_turn(self, reason: FinishReason) -> None:
        """Prints what the client receives."""
        self.close()
        text, raw = "".join(self._output).strip(), "".join(self._raw).strip()
        is_same = self._text.strip() == raw != ""
        line = (
            f"-- the response is the same text{''.join(self._notices)}"
            if is_same
            else f"-- response to the client\n{text}"
        )
        self._print(f"\n{line}\n  (finish: {reason})")
        self._text = ""
        for buffer in (self._output, self._raw, self._notices):
            buffer.clear()

    def show_result(self, name: str, arguments: str, result: str) -> None:
        """Prints the call and its result in one line."""
        self._print(f"\n-- result of {name}\n{result}")

    def close(self) -> None:
        """Ends the open line."""
        self._close_line()

    def show_totals(self, sum: Totals) -> None:
        """Prints the totals."""
        self._print(f"\n-- {sum.summary()}")

    def _close_line(self) -> None:
        if self._line_open:
            self._out.write("\n")
            self._line_open = False

    def _print(self, text: str) -> None:
        print(printable(text), file=self._out, flush=True)


class RawView:
    """Prints only the model's text, for another program to read."""

    def __init__(self, out: TextIO) -> None:
        self._out = out

    def feed_raw(self, text: str) -> None:
        """Prints the text unchanged."""
        self._out.write(text)
        self._out.flush()

    def begin(self, head: Head) -> None:
        """Does not print the heading."""

    def begin_turn(self) -> None:
        """Does not mark the turn."""

    def begin_reask(self) -> None:
        """Does not mark the second response."""

    def feed(self, event: AnyEvent, step: BlockChange) -> None:
        """Does not print events; the model's text arrives in `feed_raw`."""

    def end_turn(self, reason: FinishReason) -> None:
        """Does not print the finish reason."""

    def show_result(self, name: str, arguments: str, result: str) -> None:
        """Does not print results."""

    def close(self) -> None:
        """Leaves the output open."""

    def show_totals(self, sum: Totals) -> None:
        """Does not print totals."""
