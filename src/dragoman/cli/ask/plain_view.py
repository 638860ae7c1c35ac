"""What is shown of an exchange; and the plain way to, one thing after the other, for pipes and narrow screens."""

from typing import NamedTuple, Protocol, TextIO

from dragoman.cli._terminal_safe import printable
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
    """What is asked, and whom."""

    model: str
    where: str
    """Whose model it is."""
    question: str
    tools: tuple[str, ...]
    """As people write functions, `get_weather(city: string)`."""
    choice: str


class Totals(NamedTuple):
    """What it took."""

    turns: int
    input_tokens: int
    output_tokens: int
    cost_usd: float | None
    seconds: float
    first_s: float | None
    """Until the model's first word."""

    def words(self) -> str:
        """On one line."""
        turns = f"{self.turns} turn{'s' * (self.turns > 1)}"
        tokens = f"{self.input_tokens:,} tokens in, {self.output_tokens:,} out"
        first = "" if self.first_s is None else f", {self.first_s:.1f} s to the first word"
        cost = "" if self.cost_usd is None else f" · ${self.cost_usd:.4f}"
        return f"{turns} · {tokens} · {self.seconds:.1f} s{first}{cost}"


class View(Protocol):
    """Shows an exchange as it goes on."""

    def begin(self, head: Head) -> None:
        """The question."""

    def turn(self) -> None:
        """The model is asked."""

    def again(self) -> None:
        """It is asked once more for the same, which its client does not see."""

    def raw(self, text: str) -> None:
        """It writes."""

    def event(self, event: AnyEvent, step: BlockChange) -> None:
        """What becomes of that; `step` says which block the event opens or ends."""

    def over(self, reason: FinishReason) -> None:
        """The answer is complete."""

    def result(self, name: str, arguments: str, result: str) -> None:
        """A tool was called, and said this."""

    def close(self) -> None:
        """Nothing more comes of this turn, whatever happened."""

    def end(self, sum: Totals) -> None:
        """The last words."""


def notice_text(event: AnyEvent) -> tuple[str, str]:
    """What is said of an event that has no words of the model's, and its style; nothing of most."""
    match event:
        case ToolCallEnd(_, mended, valid, reasked):
            fits = {True: "whole, and fits its schema", False: "whole, but does not fit its schema", None: "whole"}
            more = [f"mended: {', '.join(mended)}"] * bool(mended) + ["asked for once more"] * reasked
            return "; ".join([fits[valid], *more]), "wrong" if valid is False else "right"
        case ToolCallIncomplete():
            return "broken off: not to be run", "wrong"
        case Notice(code, message):
            return f"{code}: {message}", "warning"
        case Failure(error):
            return str(error), "wrong"
        case _:
            return "", ""


def event_text(event: AnyEvent) -> tuple[str, str]:
    """What an event adds to what the client gets, and its style."""
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
    """Line by line: what the model writes as it comes, then what its client gets."""

    def __init__(self, out: TextIO) -> None:
        self._out = out
        self._said: list[str] = []
        """What the client gets, with remarks; shown after the model's own text."""
        self._text = ""
        """The same without remarks."""
        self._told: list[str] = []
        """The remarks."""
        self._raw: list[str] = []
        """The model's own text of this answer."""
        self._line_open = False

    def begin(self, head: Head) -> None:
        """The question."""
        tools = ", ".join(head.tools) or "none"
        self._print(f"model: {head.model}, of {head.where}\nasked: {head.question}\ntools: {tools}")
        self._print(f"choice: {head.choice}")

    def turn(self) -> None:
        """A title above the model's words."""
        self._print("\n-- what comes from the model")

    def again(self) -> None:
        """A title for the second time."""
        self._close_line()
        self._raw.clear()
        self._print("-- asked once more, it says")

    def raw(self, text: str) -> None:
        """As it comes."""
        shown = printable(text)
        self._raw.append(text)
        self._out.write(shown)
        self._out.flush()
        self._line_open = not shown.endswith("\n") if shown else self._line_open

    def event(self, event: AnyEvent, step: BlockChange) -> None:
        """Kept for behind the model's words."""
        said, told = event_text(event)[0], notice_text(event)[0]
        if (step.opens or told) and self._said:
            self._said.append("\n")
        self._said += [said, f"  ({told})" if told else ""]
        self._text += said
        self._told += [f"\n  ({told})"] if told else []

    def over(self, reason: FinishReason) -> None:
        """What the client gets, all of it."""
        self.close()
        said, raw = "".join(self._said).strip(), "".join(self._raw).strip()
        is_same = self._text.strip() == raw != ""
        shown = (
            f"-- its client gets the same text{''.join(self._told)}" if is_same else f"-- what its client gets\n{said}"
        )
        self._print(f"\n{shown}\n  (finish: {reason})")
        self._text = ""
        for kept in (self._said, self._raw, self._told):
            kept.clear()

    def result(self, name: str, arguments: str, result: str) -> None:
        """On one line."""
        self._print(f"\n-- {name} says\n{result}")

    def close(self) -> None:
        """End the line that is being written."""
        self._close_line()

    def end(self, sum: Totals) -> None:
        """What it took."""
        self._print(f"\n-- {sum.words()}")

    def _close_line(self) -> None:
        if self._line_open:
            self._out.write("\n")
            self._line_open = False

    def _print(self, text: str) -> None:
        print(printable(text), file=self._out, flush=True)


class RawView:
    """Only what the model writes, for another program to read."""

    def __init__(self, out: TextIO) -> None:
        self._out = out

    def raw(self, text: str) -> None:
        """As it is."""
        self._out.write(text)
        self._out.flush()

    def begin(self, head: Head) -> None:
        """Nothing."""

    def turn(self) -> None:
        """Nothing."""

    def again(self) -> None:
        """Nothing."""

    def event(self, event: AnyEvent, step: BlockChange) -> None:
        """Nothing."""

    def over(self, reason: FinishReason) -> None:
        """Nothing."""

    def result(self, name: str, arguments: str, result: str) -> None:
        """Nothing."""

    def close(self) -> None:
        """Nothing."""

    def end(self, sum: Totals) -> None:
        """Nothing."""
