"""The list of exchanges on the screen: only the lines that are visible are drawn, so its length costs nothing."""

import time
from typing import ClassVar, Final

from rich.cells import cell_len, set_cell_size
from rich.segment import Segment
from rich.style import Style
from textual.binding import Binding, BindingType
from textual.events import Click
from textual.geometry import Size
from textual.message import Message
from textual.scroll_view import ScrollView
from textual.strip import Strip

from dragoman.cli.watch.cells import Column, cells, columns
from dragoman.cli.watch.traffic_list import TrafficList, is_failed
from dragoman.console.api import TrafficRow

_FAILED: Final = Style(color="red")
_RUNNING: Final = Style(color="cyan")
_CURSOR: Final = Style(reverse=True)
_PLAIN: Final = Style()


class TrafficTable(ScrollView, can_focus=True):
    """A list with a cursor, which stays on its exchange; at the top it stays at the top."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up,k", "move(-1)", "Up", show=False),
        Binding("down,j", "move(1)", "Down", show=False),
        Binding("pageup", "page(-1)", "Page up", show=False),
        Binding("pagedown", "page(1)", "Page down", show=False),
        Binding("home,g", "first", "Newest", show=False),
        Binding("end,G", "last", "Oldest", show=False),
        Binding("enter", "open", "Details"),
    ]

    class Opened(Message):
        """The user asks for the details of an exchange."""

        def __init__(self, row: TrafficRow) -> None:
            super().__init__()
            self.row = row

    class Moved(Message):
        """The user has moved the cursor."""

    def __init__(self, rows: TrafficList) -> None:
        """Args:
        rows: the exchanges.
        """
        super().__init__(id="rows")
        self._rows = rows
        self._cursor = 0
        self._cursor_id = ""
        """The exchange under the cursor; "": the cursor stays at the top."""

    @property
    def layout_columns(self) -> list[Column]:
        """The columns for the present width."""
        return columns(self.scrollable_content_region.width)

    @property
    def cursor_row(self) -> TrafficRow | None:
        """The exchange under the cursor; None: the table is empty."""
        visible = self._rows.visible
        return visible[self._cursor] if self._cursor < len(visible) else None

    def show_rows(self) -> None:
        """Draws the rows as they are now; the exchange under the cursor stays where it is."""
        visible = self._rows.visible
        before = self._cursor
        if self._cursor_id:
            self._cursor = next(
                (place for place, row in enumerate(visible) if row.id == self._cursor_id),
                min(before, max(0, len(visible) - 1)),
            )
        else:
            self._cursor = 0
        self.virtual_size = Size(self.scrollable_content_region.width, len(visible))
        if self._cursor != before and self._cursor_id:
            self.scroll_to(y=max(0, self.scroll_offset.y + self._cursor - before), animate=False)
        self.refresh()

    def render_line(self, y: int) -> Strip:
        """Returns a line of the screen."""
        width, place = self.scrollable_content_region.width, y + self.scroll_offset.y
        visible = self._rows.visible
        if place >= len(visible):
            return Strip.blank(width, self.rich_style)
        row = visible[place]
        style = _FAILED if is_failed(row) else _RUNNING if row.state == "running" else _PLAIN
        if place == self._cursor:
            style += _CURSOR
        layout = self.layout_columns
        text = line_text(cells(row, layout, time.time()), layout, width)
        return Strip([Segment(text, self.rich_style + style)], width)

    def on_resize(self) -> None:
        """Draws for another width."""
        self.show_rows()

    def on_click(self, event: Click) -> None:
        """Moves the cursor; a second click opens the details."""
        place = event.y + self.scroll_offset.y
        if place < len(self._rows.visible):
            self._move_to(place)
            if event.chain > 1:
                self.action_open()

    def action_move(self, by: int) -> None:
        """Moves the cursor by lines."""
        self._move_to(self._cursor + by)

    def action_page(self, by: int) -> None:
        """Moves the cursor by pages."""
        self._move_to(self._cursor + by * max(1, self.scrollable_content_region.height - 1))

    def action_first(self) -> None:
        """Moves to the top, and stays there."""
        self._move_to(0)

    def action_last(self) -> None:
        """Moves to the bottom."""
        self._move_to(len(self._rows.visible) - 1)

    def action_open(self) -> None:
        """Opens the details of the exchange under the cursor."""
        if (row := self.cursor_row) is not None:
            self.post_message(self.Opened(row))

    def _move_to(self, place: int) -> None:
        visible = self._rows.visible
        self._cursor = max(0, min(place, len(visible) - 1))
        self._cursor_id = visible[self._cursor].id if self._cursor and visible else ""
        height, top = max(1, self.scrollable_content_region.height), self.scroll_offset.y
        if self._cursor < top:
            self.scroll_to(y=self._cursor, animate=False)
        elif self._cursor >= top + height:
            self.scroll_to(y=self._cursor - height + 1, animate=False)
        self.post_message(self.Moved())
        self.refresh()


def line_text(texts: list[str], layout: list[Column], width: int) -> str:
    """Returns a line of cells, each cut or filled to the width of its column.

    Args:
        texts: the cells.
        layout: the columns.
        width: columns of the line.
    """
    parts = []
    for text, column in zip(texts, layout, strict=True):
        size = cell_len(text)
        if size > column.width:
            text = f"{set_cell_size(text, column.width - 1)}…"
        elif column.is_right:
            text = " " * (column.width - size) + text
        parts.append(set_cell_size(text, column.width))
    return set_cell_size(" ".join(parts), width)
