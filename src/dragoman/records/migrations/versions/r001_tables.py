"""The first tables: exchanges, calls, their labels, sums by day, and views."""

from typing import Any, Final

import sqlalchemy as sa
from alembic import op

revision = "001"
down_revision = None

_KEY: Final = sa.BigInteger().with_variant(sa.Integer, "sqlite")
_TEXTS: Final = (
    ("version", "dialect", "key", "agent", "role", "model", "alias", "upstream", "upstream_model"),
    ("tool_mode", "format"),
)


def upgrade() -> None:
    """Creates the tables and views."""
    _create_labels()
    op.create_table(
        "exchanges",
        sa.Column("number", _KEY, primary_key=True, autoincrement=False),
        sa.Column("id", sa.Text, nullable=False),
        _id("series_id"),
        sa.Column("session", sa.Text),
        sa.Column("attempts", sa.SmallInteger, nullable=False),
        sa.Column("failed_attempts", sa.Text),
        *(sa.Column(f"{kind}_tokens", sa.Integer) for kind in ("input", "cached", "output", "reasoning")),
        sa.Column("tools_offered", sa.Integer, nullable=False),
        sa.Column("error_message", sa.Text),
        sa.Column("warnings", sa.Text),
        sa.Column("first_ms", sa.Integer),
        sa.Column("total_ms", sa.Integer, nullable=False),
        sa.Column("queue_ms", sa.Integer),
        sa.Column("prompt_ms", sa.Integer),
        sa.Column("cost_usd", sa.Double),
        sa.Column("captured", sa.Text),
    )
    op.create_table(
        "calls",
        sa.Column("number", sa.BigInteger, primary_key=True, autoincrement=False),
        _id("kind_id", primary_key=True, autoincrement=False),
        _id("series_id"),
        sa.Column("count", sa.Integer, nullable=False),
        sqlite_with_rowid=False,
    )
    _create_sums()
    _create_views()


def downgrade() -> None:
    """Drops the tables and views, with all records."""
    for view in ("call_view", "exchange_view"):
        op.execute(f"DROP VIEW {view}")
    for table in ("day_times", "day_calls", "day_totals", "calls", "exchanges", "call_kinds", "series"):
        op.drop_table(table)


def _create_labels() -> None:
    op.create_table(
        "series",
        sa.Column("id", _KEY, primary_key=True, autoincrement=False),
        *(sa.Column(name, sa.Text, nullable=False) for names in _TEXTS for name in names),
        sa.Column("stream", sa.Boolean, nullable=False),
        sa.Column("passthrough", sa.Boolean, nullable=False),
        sa.Column("finish", sa.Text, nullable=False),
        sa.Column("status", sa.SmallInteger, nullable=False),
        sa.Column("error", sa.Text, nullable=False),
    )
    op.create_table(
        "call_kinds",
        sa.Column("id", _KEY, primary_key=True, autoincrement=False),
        *(sa.Column(name, sa.Text, nullable=False) for name in ("tool", "outcome", "repairs")),
    )


def _create_sums() -> None:
    part_of_key: dict[str, Any] = {"primary_key": True, "autoincrement": False}
    day = ("day", sa.Integer)
    op.create_table(
        "day_totals",
        sa.Column(*day, **part_of_key),
        _id("series_id", **part_of_key),
        sa.Column("exchanges", sa.Integer, nullable=False),
        sa.Column("attempts", sa.Integer, nullable=False),
        *(
            sa.Column(f"{kind}_tokens", sa.BigInteger, nullable=False)
            for kind in ("input", "cached", "output", "reasoning")
        ),
        sa.Column("total_ms", sa.BigInteger, nullable=False),
        sa.Column("cost_usd", sa.Double, nullable=False),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "day_calls",
        sa.Column(*day, **part_of_key),
        _id("series_id", **part_of_key),
        _id("kind_id", **part_of_key),
        sa.Column("count", sa.Integer, nullable=False),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "day_times",
        sa.Column(*day, **part_of_key),
        _id("series_id", **part_of_key),
        sa.Column("bucket", sa.SmallInteger, **part_of_key),
        sa.Column("first", sa.Integer, nullable=False),
        sa.Column("total", sa.Integer, nullable=False),
        sqlite_with_rowid=False,
    )


def _create_views() -> None:
    time = "CAST({}.number AS DOUBLE PRECISION) / 1024000000.0 AS time"
    series = (
        "s.version, s.dialect, s.key, s.agent, s.role, s.model, s.alias, s.upstream, s.upstream_model, s.tool_mode, "
        "s.format, s.stream, s.passthrough, s.finish, s.status, s.error"
    )
    op.execute(
        f"CREATE VIEW exchange_view AS SELECT {time.format('e')}, e.number, e.id, e.session, e.attempts, "
        "e.failed_attempts, e.input_tokens, e.cached_tokens, e.output_tokens, e.reasoning_tokens, e.tools_offered, "
        "e.error_message, e.warnings, e.first_ms, e.total_ms, e.queue_ms, e.prompt_ms, e.cost_usd, e.captured, "
        f"{series} FROM exchanges AS e LEFT JOIN series AS s ON s.id = e.series_id"
    )
    op.execute(
        f"CREATE VIEW call_view AS SELECT {time.format('c')}, c.number, k.tool, k.outcome, k.repairs, c.count, "
        f"{series} FROM calls AS c LEFT JOIN call_kinds AS k ON k.id = c.kind_id "
        "LEFT JOIN series AS s ON s.id = c.series_id"
    )


def _id(name: str, **options: Any) -> "sa.Column[int]":
    return sa.Column(name, sa.BigInteger, nullable=False, **options)
