"""Finds one field of a multipart form, so that its bytes can be replaced; the rest of the form is not parsed.

Source: https://www.rfc-editor.org/rfc/rfc7578 (2026-11).
"""

import re
from typing import Final

from dragoman.core.errors import RequestError

_BOUNDARY: Final = re.compile(r'multipart/form-data\s*;.*?\bboundary=(?:"([^"]{1,70})"|([^\s;"]{1,70}))', re.I | re.S)
_NAME: Final = re.compile(rb'^content-disposition:[^\r\n]*?;\s*name="?([^";\r\n]*)"?', re.I | re.M)
_HEAD_BYTES: Final = 8192
"""Maximum size of the headers of one part."""


def boundary(content_type: str) -> bytes | None:
    """Returns the boundary of a multipart form, or None if the content type is another."""
    match = _BOUNDARY.match(content_type)
    return (match[1] or match[2]).encode("latin-1") if match else None


def form_field(body: bytes, boundary: bytes, name: str) -> tuple[int, int] | None:
    """Returns the start and the end of a field's value in the body, or None if there is no such field.

    Raises: RequestError: the body is not a form with that boundary.
    """
    line = b"\r\n--" + boundary
    at = 0 if body.startswith(line[2:]) else body.find(line)
    if at < 0:
        raise RequestError("expected a form with the boundary of its content-type, got another body")
    at += len(line) - (0 if body.startswith(b"\r\n", at) else 2)
    while not body.startswith(b"--", at):
        head_end = body.find(b"\r\n\r\n", at, at + _HEAD_BYTES)
        end = body.find(line, max(at, head_end))
        if head_end < 0 or end < 0:
            raise RequestError("expected a whole form, got one that is cut off")
        match = _NAME.search(body[at:head_end])
        if match is not None and match[1] == name.encode():
            return head_end + 4, end
        at = end + len(line)
    return None
