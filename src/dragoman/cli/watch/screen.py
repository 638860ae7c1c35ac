"""The live list on the terminal's screen."""

from typing import ClassVar, Final

from msgspec.structs import replace
from rich.traceback import Traceback
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.screen import Screen
from textual.widgets import Footer, Input, Static

from dragoman.cli.watch.cells import LEGEND
from dragoman.cli.watch.details import DetailsScreen
from dragoman.cli.watch.feed import TrafficFeed
from dragoman.cli.watch.table import TrafficTable, line_text
from dragoman.cli.watch.traffic_list import TrafficList
from dragoman.console.api import CaptureState, ConsoleState
from dragoman.core.errors import DragomanError

_PLACEHOLDER: Final = "words, such as: claude get_weather failed"
_TITLES: Final = {"MODEL": "MODEL → UPSTREAM"}
_TICK_S: Final = 1.0
"""How often the time of running exchanges is drawn."""


class WatchApp(App[int]):
    """Follows the exchanges of a gateway until the user ends it."""

    TITLE = "dragoman watch"
    ENABLE_COMMAND_PALETTE = False

    def __init__(self, feed: TrafficFeed, query: str = "", *, only_failed: bool = False) -> None:
        """Args:
        feed: the exchanges.
        query: words that all must occur in an exchange.
        only_failed: whether only failed ones are shown at first.
        """
        super().__init__()
        self.list_screen = ListScreen(feed, query, only_failed=only_failed)

    def on_mount(self) -> None:
        """Shows the list."""
        self.push_screen(self.list_screen)

    def _fatal_error(self) -> None:
        """Ends after a bug, with a traceback without local variables: one is the API key."""
        self.panic(Traceback(show_locals=False))


class ListScreen(Screen[None]):
    """The list of exchanges."""

    CSS = """
    #head { height: 1; text-style: bold; }
    #titles { height: 1; text-style: bold underline; }
    #rows { height: 1fr; scrollbar-size-vertical: 1; scrollbar-size-horizontal: 0; overflow-x: hidden; }
    #query { display: none; height: 1; border: none; padding: 0; }
    #query.open { display: block; }
    #empty { height: auto; display: none; color: $text-muted; }
    #empty.open { display: block; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("slash", "search", "Search", key_display="/"),
        Binding("space,p", "pause", "Pause", key_display="Space"),
        Binding("f", "failed", "Failed"),
        Binding("s", "sort", "Sort"),
        Binding("c", "capture", "Capture"),
        Binding("escape", "reset", "Reset", show=False),
        Binding("q", "app.quit", "Quit"),
    ]

    def __init__(self, feed: TrafficFeed, query: str = "", *, only_failed: bool = False) -> None:
        """Args:
        feed: the exchanges.
        query: words that all must occur in an exchange.
        only_failed: whether only failed ones are shown at first.
        """
        super().__init__()
        self.feed = feed
        self.rows = TrafficList()
        self.rows.query, self.rows.only_failed = query, only_failed
        self.state: ConsoleState | None = None
        self.problem = ""

    def compose(self) -> ComposeResult:
        """Yields the parts of the screen, from the top."""
        yield Static(id="head", markup=False)
        yield Static(id="titles", markup=False)
        yield TrafficTable(self.rows)
        yield Static(id="empty", markup=False)
        yield Input(
            value=self.rows.query, placeholder="words, such as: claude get_weather failed", id="query", compact=True
        )
        yield Footer()

    def on_mount(self) -> None:
        """Begins to follow the exchanges."""
        self.table.focus()
        self.run_worker(self._follow(), exclusive=True)
        self.set_interval(_TICK_S, self._tick)
        self.call_after_refresh(self._draw)

    @property
    def table(self) -> TrafficTable:
        """The widget with the rows."""
        return self.query_one(TrafficTable)

    async def _follow(self) -> None:
        async for update in self.feed.updates():
            self.problem = update.problem
            if update.state is not None:
                self.state = update.state
                self.rows.end_others(update.rows)
            self.rows.add(update.rows)
            self._draw()

    def _tick(self) -> None:
        if self.rows.running_count:
            self.table.refresh()
        self._draw_head()

    def _draw_head(self) -> None:
        self.query_one("#head", Static).update(self._head())

    def on_resize(self) -> None:
        """Draws the titles for another width."""
        self.call_after_refresh(self._draw)

    def _draw(self) -> None:
        table = self.table
        table.show_rows()
        layout = table.layout_columns
        titles = line_text([_TITLES.get(column.title, column.title) for column in layout], layout, self.size.width)
        self.query_one("#titles", Static).update(titles)
        self._draw_head()
        empty = self.query_one("#empty", Static)
        empty.update(self._empty_text())
        empty.set_class(not self.rows.visible, "open")

    def _head(self) -> str:
        """Returns the first line: what is watched, and what is shown of it."""
        rows = self.rows
        address = self.feed.address.url.removeprefix("http://")
        if self.state is None and not self.problem:
            return f"connecting to {address} …"
        parts = [self.problem or address]
        count = f"{len(rows.visible):,} of {len(rows):,}" if rows.is_filtered else f"{len(rows):,}"
        parts.append(f"{count} exchange{'' if len(rows) == 1 else 's'}")
        if above := self.table.scroll_offset.y:
            parts.append(f"↑ {above} newer")
        if rows.running_count:
            parts.append(f"{rows.running_count} running")
        if self.state is not None:
            parts.append(f"capture {self.state.capture.mode}")
        if rows.is_paused:
            parts.append(f"PAUSED, {rows.new_count} new")
        if rows.only_failed:
            parts.append("failed only")
        if rows.failed_first:
            parts.append("failed first")
        if rows.query:
            parts.append(f"/{rows.query}")
        return " · ".join(parts)

    def _empty_text(self) -> str:
        if self.rows.is_filtered and len(self.rows):
            return "No exchange matches; Esc shows all."
        if self.state is None:
            return ""
        return f"No exchange yet. Point an agent to {self.feed.address.url}, for example: dragoman run claude\n{LEGEND}"

    def on_traffic_table_opened(self, event: TrafficTable.Opened) -> None:
        """Shows the details of an exchange."""
        self.app.push_screen(DetailsScreen(self.feed, self.rows, event.row))

    def on_traffic_table_moved(self) -> None:
        """Draws how many newer exchanges are above."""
        self.call_after_refresh(self._draw_head)

    def action_search(self) -> None:
        """Opens the line for the words to search for."""
        field = self.query_one("#query", Input)
        field.add_class("open")
        field.focus()

    def on_input_changed(self, event: Input.Changed) -> None:
        """Filters while the user types."""
        self.rows.query = event.value
        self.rows.update(in_pause=True)
        self._draw()

    def on_input_submitted(self) -> None:
        """Returns to the list."""
        self.query_one("#query", Input).remove_class("open")
        self.table.focus()

    def action_reset(self) -> None:
        """Removes all filters, or closes the line for the search."""
        self.query_one("#query", Input).value = ""
        self.on_input_submitted()
        self.rows.query, self.rows.only_failed, self.rows.failed_first = "", False, False
        self.rows.update(in_pause=True)
        self._draw()

    def action_pause(self) -> None:
        """Stops or continues the list."""
        self.rows.pause(not self.rows.is_paused)
        self._draw()

    def action_failed(self) -> None:
        """Shows failed exchanges only, or all."""
        self.rows.only_failed = not self.rows.only_failed
        self.rows.update(in_pause=True)
        self._draw()

    def action_sort(self) -> None:
        """Shows failed exchanges first, or the newest."""
        self.rows.failed_first = not self.rows.failed_first
        self.rows.update(in_pause=True)
        self._draw()

    async def action_capture(self) -> None:
        """Begins or ends to capture exchanges in the memory of the gateway."""
        if self.state is None:
            self.notify("There is no connection to the gateway yet.")
            return
        if self.state.capture.mode == "disk":
            self.notify("The gateway captures to disk (setting capture.dir).")
            return
        try:
            capture: CaptureState = await self.feed.switch_capture(self.state.capture.mode == "off")
        except DragomanError as error:
            self.notify(error.message, severity="error", markup=False)
            return
        self.state = replace(self.state, capture=capture)
        self._draw()
