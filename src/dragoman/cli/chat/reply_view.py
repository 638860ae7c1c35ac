"""Shows responses while they arrive: the reply on standard output, everything else on standard error.

At a terminal the reply is wrapped and coloured, and reasoning is dim. A pipe gets the model's text unchanged.
"""

from shutil import get_terminal_size
from typing import Final, NamedTuple, TextIO

from dragoman.cli._terminal import ProgressLine, one_line, printable
from dragoman.cli.chat.approval import arguments_text, shortened
from dragoman.cli.chat.reply_text import Palette, ReplyText
from dragoman.core.backend import PromptProgress
from dragoman.core.events import AnyEvent, Notice, ReasoningDelta, RefusalDelta, TextDelta, ToolCallStart
from dragoman.core.messages import ToolCall, Usage

_WAITING: Final = "waiting for the model"
_RESULT_CHARS: Final = 300
_MEASURABLE_S: Final = 0.5
"""Minimum time of a response whose speed is text."""
_QUIET: Final = frozenset(
    (
        *(
            "call_repaired",
            "estimated_usage",
            "extra_arguments",
            "fenced_call",
            "json_repaired",
            "leaked_call_recovered",
        ),
        *("missing_closing_tag", "missing_opening_tag", "reasked", "trailing_call", "unclosed_call_object"),
        *("untagged_call", "unwrapped_arguments"),
    )
)
"""Warnings about calls that were repaired, and about counts."""


class Look(NamedTuple):
    """How responses are text."""

    palette: Palette
    is_terminal: bool = False
    """Standard output is a terminal."""
    reasoning: bool = True
    """The reasoning is text."""
    is_chat: bool = False
    """There are further messages, so each response has a line with its length and speed."""
    silent: bool = False
    """The reply is not printed, because it is part of a JSON object."""


class ReplyView:
    """The view of a chat."""

    def __init__(self, out: TextIO, err: TextIO, look: Look) -> None:
        self._out, self._err, self._look = out, err, look
        self.line = ProgressLine(err)
        """The line that says what the user waits for."""
        self._waits_for = ""
        self._progress: PromptProgress | None = None
        self._text: ReplyText | None = None
        self._kind = ""
        """What is being printed: `text`, `reasoning`, or nothing yet."""
        self._line_open = self._has_text = False
        self._reported = set[str]()
        self._labels: list[str] = []
        """Warnings of a running gateway that are not printed yet."""
        self.warnings: list[str] = []
        """All warnings so far, as text."""

    def begin(self) -> None:
        """A response is requested."""
        self._progress, self._kind, self._waits_for = None, "", _WAITING
        self.tick()

    @property
    def has_colour(self) -> bool:
        """Whether colours are used."""
        return self._look.palette.on

    def space(self) -> None:
        """Prints an empty line before the next message."""
        self._print("")

    def remark(self, text: str) -> None:
        """Prints a line about the chat itself."""
        self._print(one_line(text), self._look.palette.dim)

    def tick(self) -> None:
        """Redraws the line that says what the user waits for."""
        while self._labels:
            self.warn_labels(self._labels.pop(0))
        if not self._waits_for:
            return
        progress = self._progress
        if progress is not None and progress.done < progress.total and self._waits_for == _WAITING:
            text = f"reading {progress.done:,} of {progress.total:,} tokens"
            text += f"; {progress.cut}" if progress.cut else ""
        else:
            text = self._waits_for
        self.line.print(text[: max(10, get_terminal_size().columns - 12)])

    def on_progress(self, progress: PromptProgress) -> None:
        """The model has read so much of the prompt. Called in another thread."""
        self._progress = progress

    def on_warnings(self, labels: str) -> None:
        """A running gateway reports these warnings. Called in another thread."""
        self._labels.append(labels)

    def feed(self, event: AnyEvent) -> None:
        """Shows what an event adds."""
        if isinstance(event, TextDelta | RefusalDelta):
            self._show("text", event.text)
        elif isinstance(event, ReasoningDelta):
            if self._look.reasoning and self._look.is_terminal:
                self._show("reasoning", event.text)
            elif event.text:
                self._waits_for = "the model is reasoning"
        elif isinstance(event, ToolCallStart):
            self._waits_for = f"the model is writing a call of {one_line(event.name)}"
            self._end_text()
        elif isinstance(event, Notice) and event.code not in _QUIET:
            self.warn(f"{event.code}: {event.message}", event.label)

    def end(self, usage: Usage, seconds: float, first_s: float | None) -> None:
        """The response is complete.

        Args:
            usage: Its token counts.
            seconds: Its time; 0: its speed is not text.
            first_s: Time to the first token; None: there was none.
        """
        self.close()
        if self._look.is_chat:
            self._print(_summary(usage, seconds, first_s), self._look.palette.dim)

    def close(self) -> None:
        """Ends the open line, also after an error."""
        self._waits_for = ""
        self.tick()
        self.line.clear()
        self._end_text()

    def call(self, call: ToolCall, server: str) -> None:
        """Shows a call."""
        palette = self._look.palette
        title = palette.paint(f"→ {one_line(call.name)}", palette.bold, palette.code)
        where = palette.paint(f" ({one_line(server)})" if server else "", palette.dim)
        self._print(f"{title} {shortened(arguments_text(call))}{where}")

    def running(self, name: str) -> None:
        """A call is being run."""
        self._waits_for = f"running {one_line(name)}"
        self.tick()

    def result(self, text: str, *, is_error: bool) -> None:
        """Shows the result of a call, shortened."""
        self.close()
        palette = self._look.palette
        text = shortened(one_line(text.strip()), _RESULT_CHARS) or "(empty)"
        self._print(f"← {'error: ' if is_error else ''}{text}", palette.wrong if is_error else palette.dim)

    def warn(self, text: str, label: str = "") -> None:
        """Shows a warning, each once."""
        label = label or text
        if label in self._reported:
            return
        self._reported.add(label)
        self.warnings.append(text)
        self._print(f"dragoman: warning: {one_line(text)}", self._look.palette.warning)

    def warn_labels(self, labels: str) -> None:
        """Shows the warnings that a running gateway reports, by their labels only."""
        for label in filter(None, (each.strip() for each in labels.split(","))):
            code = label.partition(":")[0]
            if code not in _QUIET:
                meaning = "; the model does not get this content" if code == "content_dropped" else ""
                self.warn(f"{label}{meaning}", label)

    def error(self, text: str) -> None:
        """Shows an error."""
        self.close()
        self._print(f"dragoman: {one_line(text)}", self._look.palette.wrong)

    def show(self, text: str) -> None:
        """Prints text for the user; control characters are escaped."""
        self._print(printable(text))

    def _show(self, kind: str, text: str) -> None:
        if not text or self._look.silent:
            return
        self._waits_for = ""
        self.line.clear()
        if kind != self._kind:
            self._begin_block(kind)
        text = self._text.feed(text) if self._text else text
        if text:
            self._out.write(text)
            self._out.flush()
            self._line_open = not text.endswith("\n")
        self._has_text = True

    def _begin_block(self, kind: str) -> None:
        before = self._kind
        self._end_text()
        if before or (self._has_text and not self._look.is_terminal):
            self._out.write("\n")  # between reasoning and text, and between the responses of several rounds
        self._kind = kind
        palette = self._look.palette
        if self._look.is_terminal:
            style = palette.dim if kind == "reasoning" else ""
            self._text = ReplyText(get_terminal_size().columns, palette, style)
            if not palette.on and (kind == "reasoning" or before == "reasoning"):
                self._out.write("(reasoning)\n" if kind == "reasoning" else "(reply)\n")

    def _end_text(self) -> None:
        rest = self._text.close() if self._text else ""
        self._text, self._kind = None, ""
        if rest:
            self._out.write(rest)
        if rest or self._line_open:
            self._out.write("\n")
            self._out.flush()
        self._line_open = False

    def _print(self, text: str, *styles: str) -> None:
        """Prints a line to standard error, below the text so far."""
        self.line.clear()
        if self._look.is_terminal:
            self._end_text()
        print(self._look.palette.paint(text, *styles), file=self._err, flush=True)


def _summary(usage: Usage, seconds: float, first_s: float | None) -> str:
    """Returns `85 tokens, 27 tokens/s; read 1,240 (1,100 cached), first token after 0.4 s`."""
    parts = [f"{usage.output_tokens:,} tokens"]
    writing_s = seconds - (first_s or 0.0)
    if usage.output_tokens > 1 and first_s is not None and writing_s > _MEASURABLE_S:
        parts.append(f"{usage.output_tokens / writing_s:.0f} tokens/s")
    cached = f" ({usage.cached_input_tokens:,} cached)" if usage.cached_input_tokens else ""
    parts.append(f"{usage.input_tokens:,} read{cached}")
    if first_s is not None:
        parts.append(f"first token after {first_s:.1f} s")
    return f"  {' · '.join(parts)}"
