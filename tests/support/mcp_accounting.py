"""The MCP server with forty-six tools, and calls of two of them."""

from typing import Final

from support.paths import SUPPORT

SERVER: Final = SUPPORT / "clients" / "mcp_server.py"


LONG: Final = "reports.of_all_customers_with_their_open_invoices_by_quarter_and_"


CALLS: Final[list[tuple[str, dict[str, object]]]] = [
    ("accounts.get", {"id": 7, "note": 'Grüße "🌊"'}),
    (f"{LONG}currency", {}),
    ("close_year", {"year": 2025}),
    ("write_invoice", {"lines": [{"text": "tea", "amount": 2.5}, {"text": "milk", "amount": 1, "unit": "CHF"}]}),
]


RESULTS: Final = [
    'accounts.get 7 Grüße "🌊"',
    "no open invoices in CHF",
    "2025 has open bookings",
    "tea: 2.5 EUR, milk: 1 CHF",
]
