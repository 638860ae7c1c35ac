"""The database of a report, with the labels of exchanges and calls, which are read once."""

import math
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from functools import cached_property
from typing import Any

from sqlalchemy import Connection, Select, select

from dragoman.records import schema


class RecordSource:
    """A connection in a transaction, so that all queries see the same records."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.is_sqlite = connection.dialect.name == "sqlite"
        if self.is_sqlite:
            _define_logarithm(connection)

    @cached_property
    def series(self) -> list[Mapping[str, Any]]:
        """All rows of `series`."""
        names = [column.name for column in schema.series.columns]
        with self.tuples(select(schema.series)) as rows:
            return [dict(zip(names, row, strict=True)) for row in rows]

    @cached_property
    def kinds(self) -> dict[int, tuple[str, str]]:
        """Tool and outcome of each kind of calls."""
        kinds = schema.call_kinds.c
        with self.tuples(select(kinds.id, kinds.tool, kinds.outcome)) as rows:
            return {id: (tool, outcome) for id, tool, outcome in rows}

    @contextmanager
    def tuples(self, query: Select[Any]) -> Iterator[Iterable[tuple[Any, ...]]]:
        """Yields the rows as the driver returns them: SQLAlchemy's rows take twice the time."""
        text = str(query.compile(dialect=self.connection.dialect, compile_kwargs={"literal_binds": True}))
        with closing(self.connection.connection.cursor()) as cursor:
            cursor.execute(text.replace("%%", "%"))
            rows: Any = cursor  # drivers for Python can be iterated
            yield rows


def _define_logarithm(connection: Connection) -> None:
    """Defines the function `ln`, which some builds of SQLite lack."""
    options = connection.exec_driver_sql(
        "SELECT 1 FROM pragma_compile_options WHERE compile_options LIKE '%MATH_FUNC%'"
    )
    if options.first() is None:
        driver: Any = connection.connection.driver_connection
        driver.create_function("ln", 1, lambda value: None if value is None else math.log(value), deterministic=True)
