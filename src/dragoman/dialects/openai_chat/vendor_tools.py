"""`web_search_options` of Chat Completions, when Dragoman searches or has to say that it cannot.

The API has no form for calls and results, so clients only get the text of the response, and its citations.

Source: https://platform.openai.com/docs/api-reference/chat/create, the types in the openai package 3.57 (2026-11).
"""

from typing import Final

from dragoman.core.messages import Request
from dragoman.text.json_cursor import Cursor
from dragoman.vendor_tools.codec import VendorToolCodec
from dragoman.vendor_tools.tool import VendorTool

OPTION: Final = "web_search_options"
PAGE: Final = "open_page"
"""Name of the function that fetches a page that was found."""


def _declared(request: Request) -> tuple[VendorTool, ...]:
    options = request.extra.get(OPTION)
    if options is None:
        return ()
    location = Cursor(options, f"$.{OPTION}").fields().object("user_location")
    search = VendorTool("web_search", "web_search", OPTION, user_location=location)
    return search, VendorTool("web_fetch", PAGE, PAGE, can_find=True, next_to="web_search")


VENDOR_TOOLS: Final = VendorToolCodec(
    has_annotations=True, declared=_declared, options=frozenset({OPTION}), shows_calls=False
)
