"""One exchange on the screen: its facts, what is worth knowing about it, and the model's text if it is captured."""

from collections.abc import Iterator, Mapping
from typing import ClassVar, Final

from rich.style import Style
from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.screen import Screen
from textual.widgets import Footer, Static

from dragoman.cli._console import fetch
from dragoman.cli._terminal import one_line, printable
from dragoman.cli.doctor.gateway_client import open_gateway
from dragoman.cli.report.tables import format_ms
from dragoman.cli.watch.feed import TrafficFeed
from dragoman.cli.watch.traffic_list import TrafficList
from dragoman.console.api import TrafficRow
from dragoman.console.exchange.views import ExchangeNote, ExchangeView, LaneBlock
from dragoman.core.errors import DragomanError

_TICK_S: Final = 1.0
"""How often the view of a running exchange is read again."""
_TIMEOUT_S: Final = 20.0
_MAX_CHARS: Final = 200_000
"""Maximum characters of a lane on the screen."""
LANES: Final = ("client", "sent", "model", "reply")
_DIM, _BOLD = Style(dim=True), Style(bold=True)
_STYLES: Final[Mapping[str, Style]] = {
    "reasoning": Style(italic=True, color="blue"),
    "markup": Style(dim=True, color="magenta"),
    "name": Style(bold=True, color="green"),
    "arguments": Style(underline=True, color="green"),
    "repair": Style(reverse=True, color="yellow"),
    "broken": Style(reverse=True, color="red"),
    "dropped": Style(strike=True, color="red"),
    "unread": Style(reverse=True, color="red"),
    "role": Style(bold=True),
}
"""Style of each kind of segment: it differs without colours too."""
_SUPERSCRIPT: Final = str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹")
_FACTS: Final[Mapping[str, str]] = {
    "client": "key agent role session dialect stream",
    "model": "model upstream upstream_model tool_mode format",
    "result": "state status finish error attempts",
    "tokens": "input_tokens cached_tokens output_tokens",
}
"""Fields of a row by the title under which they are shown."""


class DetailsScreen(Screen[None]):
    """The details of one exchange."""

    CSS = """
    DetailsScreen VerticalScroll { scrollbar-size-vertical: 1; }
    #title { height: 1; text-style: bold; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q,enter", "close", "Back", key_display="Esc"),
        Binding("1", "lane(0)", "Client"),
        Binding("2", "lane(1)", "Sent"),
        Binding("3", "lane(2)", "Model"),
        Binding("4", "lane(3)", "Reply"),
    ]

    def __init__(self, feed: TrafficFeed, rows: TrafficList, row: TrafficRow) -> None:
        """Args:
        feed: asks for the exchange.
        rows: the list, in which the row may be replaced.
        row: the exchange.
        """
        super().__init__()
        self._feed, self._rows, self._row = feed, rows, row
        self._lane = LANES.index("model")
        self._view: ExchangeView | None = None
        self._problem = ""
        self._is_over = False

    def compose(self) -> ComposeResult:
        """Yields the parts of the screen."""
        yield Static(id="title", markup=False)
        with VerticalScroll():
            yield Static(id="facts", markup=False)
        yield Footer()

    def on_mount(self) -> None:
        """Begins to read the exchange."""
        self.query_one(VerticalScroll).focus()
        self._draw()
        self._reading = self.run_worker(self._read())
        self._ticks = self.set_interval(_TICK_S, self.read_again)

    def read_again(self) -> None:
        """Reads the exchange again, unless it is being read or has ended."""
        if self._is_over:
            self._ticks.stop()
        elif self._reading.is_finished:
            self._reading = self.run_worker(self._read())

    async def _read(self) -> None:
        """Reads the exchange, the last time after its end."""
        row = self._rows.get(self._row.id) or self._row
        try:
            async with open_gateway(*self._feed.address) as gateway:
                self._view = await fetch(gateway, f"/exchanges/{row.id}", ExchangeView, _TIMEOUT_S)
                self._problem = ""
        except DragomanError as error:
            self._problem = error.message
        self._row = row
        self._is_over = row.state != "running"
        self._draw()

    def action_close(self) -> None:
        """Returns to the list."""
        self.dismiss()

    def action_lane(self, number: int) -> None:
        """Shows another lane.

        Args:
            number: its place in `LANES`.
        """
        self._lane = number
        self._draw()

    def _draw(self) -> None:
        row = self._row
        self.query_one("#title", Static).update(f"{one_line(row.id)} · {row.state}")
        self.query_one("#facts", Static).update(details_text(row, self._view, self._problem, LANES[self._lane]))


def details_text(row: TrafficRow, view: ExchangeView | None, problem: str, lane: str) -> Text:
    """Returns the details of an exchange.

    Args:
        row: its row.
        view: its captured text and what is known about it; None: not read yet.
        problem: why it could not be read; "": it could.
        lane: the name of the lane whose text is shown.
    """
    text = Text()
    for line in _fact_lines(row):
        text.append(f"{line}\n")
    if view is not None:
        for note in view.notes:
            _append_note(text, note)
        if view.cache_note:
            text.append(f"• {printable(view.cache_note)}\n")
        for call in view.sent_calls:
            error = f": {call.error}" if call.error else ""
            text.append(
                printable(f"→ {call.number} {call.why}: {call.backend} {call.model} {call.mode}{error}\n"), _DIM
            )
    text.append("\n")
    if problem:
        text.append(printable(f"{problem}\n"), _DIM)
    elif view is None:
        text.append("reading …\n", _DIM)
    elif not view.is_captured:
        text.append("The text of this exchange is not captured; c in the list captures those that follow.\n", _DIM)
    else:
        _append_lane(text, view, lane)
    return text


def _fact_lines(row: TrafficRow) -> Iterator[str]:
    for title, names in _FACTS.items():
        values = [(name, getattr(row, name)) for name in names.split()]
        facts = [f"{name} {_value(value)}" for name, value in values if value not in (None, "", False)]
        if facts:
            yield f"{title:<8}{', '.join(facts)}"
    times = [
        f"{name} {format_ms(ms)}" for name, ms in (("first", row.first_ms), ("total", row.total_ms)) if ms is not None
    ]
    if times:
        yield f"{'time':<8}{', '.join(times)}"
    for call in row.calls:
        repairs = f" ({', '.join(call.repairs)})" if call.repairs else ""
        count = f" x{call.count}" if call.count > 1 else ""
        tool = one_line(call.tool) or "(a tool that was not offered)"
        yield f"{'call':<8}{tool}: {call.outcome}{one_line(repairs)}{count}"
    for warning in row.warnings:
        yield f"{'warning':<8}{one_line(warning)}"


def _value(value: object) -> str:
    return f"{value:,}" if isinstance(value, int) and value is not True else one_line(str(value))


def _append_note(text: Text, note: ExchangeNote) -> None:
    text.append(printable(f"• {note.message}\n"))
    advice = " ".join(filter(None, (note.remedy, f"[{', '.join(note.settings)}]" if note.settings else "")))
    if advice:
        text.append(printable(f"  {advice}\n"), _DIM)


def _append_lane(text: Text, view: ExchangeView, name: str) -> None:
    lane = next((each for each in view.lanes if each.name == name), None)
    if lane is None or not lane.blocks:
        text.append(f"nothing in the lane {name}\n", _DIM)
        return
    text.append(printable(lane.title), _BOLD)
    text.append(printable(f"  {lane.summary}\n"), _DIM)
    left = _MAX_CHARS
    kinds: dict[str, None] = {}
    for block in lane.blocks:
        left = _append_block(text, block, left, kinds)
        if left <= 0:
            text.append("\n… the rest is on the page: dragoman console\n", _DIM)
            break
    if kinds:
        text.append("\n\nkinds: ", _DIM)
        for kind in kinds:
            text.append(kind, _STYLES[kind])
            text.append(" ")


def _append_block(text: Text, block: LaneBlock, left: int, kinds: dict[str, None]) -> int:
    """Appends a block.

    Args:
        text: what it is appended to.
        block: the block.
        left: number of characters that may still be shown.
        kinds: gets the kinds of segments that have a style.

    Returns:
        The number of characters that may still be shown.
    """
    change = f" ({block.change})" if block.change not in ("", "same") else ""
    text.append(printable(f"\n─ {block.title}{change}\n"), _DIM)
    notes: dict[str, int] = {}
    for segment in block.segments:
        part = segment.text[: max(0, left)]
        left -= len(segment.text)
        style = _STYLES.get(segment.kind)
        if style is not None:
            kinds[segment.kind] = None
        text.append(printable(part), style or "")
        for note in segment.notes:
            number = notes.setdefault(note.rule or note.message, len(notes) + 1)
            text.append(str(number).translate(_SUPERSCRIPT), _DIM)
    for rule, number in notes.items():
        text.append(printable(f"\n  {str(number).translate(_SUPERSCRIPT)} {rule}"), _DIM)
    return left
