"""Rows of a report as CSV and Parquet."""

import csv
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from dragoman.cli._common import require_extras
from dragoman.cli.report.rows import SIDE, SIGNIFICANT, RowSet
from dragoman.core.errors import ConfigError
from dragoman.records.reports.report import Table
from dragoman.records.reports.totals import ExchangeTotals


def column_names(row_set: RowSet) -> list[str]:
    """Returns the names of all columns, also of a report without rows."""
    if row_set.rows:
        return list(row_set.rows[0])
    return [*row_set.grouping.by, *Table(row_set.grouping, {}, None).numbers(ExchangeTotals())]


def write_csv(row_set: RowSet) -> None:
    """Writes the rows to standard output; what is not known is empty."""
    writer = csv.DictWriter(sys.stdout, column_names(row_set), lineterminator="\n")
    writer.writeheader()
    writer.writerows(row_set.rows)


def write_parquet(path: Path, row_set: RowSet) -> None:
    """Writes the rows to a file.

    Raises: ConfigError: the extra is missing, or the file cannot be written.
    """
    require_extras("parquet", doing="writing Parquet")
    from arro3.core import Array, DataType
    from arro3.core import Table as ArrowTable
    from arro3.io import write_parquet as write

    names = column_names(row_set)
    texts = (*row_set.grouping.by, SIDE)
    types: dict[str, Any] = {name: DataType.string() for name in texts}
    types |= {SIGNIFICANT: DataType.bool()}
    types |= {name: DataType.float64() for name in names if name.endswith(("_share", "_usd"))}
    arrays = [_array(row_set.rows, name, types.get(name, DataType.int64()), Array) for name in names]
    try:
        with path.open("wb") as file:
            write(ArrowTable.from_arrays(arrays, names=names), file)
    except OSError as error:
        raise ConfigError(f"cannot write {path}: {(error.strerror or str(error)).lower()} - at --parquet") from None


def _array(rows: Sequence[dict[str, Any]], name: str, type: Any, make: Any) -> Any:
    return make([row[name] for row in rows], type)
