"""Labels in the options of the command, without the imports of what reads them."""

from typing import Final

DIMENSIONS: Final = (
    *("model", "requested", "upstream", "mode", "format", "agent", "role", "key", "api", "version"),
    *("status", "error", "tool", "day", "hour"),
)
"""As `records.reports.grouping.DIMENSIONS`."""
FILTERS: Final = ("model", "upstream", "agent", "role", "key", "version")
"""Labels with an option of their own."""
