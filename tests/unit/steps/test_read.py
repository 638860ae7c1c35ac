"""Errors of steps in JSON."""

import msgspec
import pytest

from dragoman.core.errors import RequestError
from dragoman.steps.read import DERIVE, read_header, read_steps
from dragoman.text.json_cursor import Cursor


def test_error_names_the_texts_that_are_allowed() -> None:
    with pytest.raises(RequestError, match='expected object, "derive" or "off", got number - at x-dragoman-steps'):
        read_header("5")
    with pytest.raises(RequestError, match='expected object or "derive", got number - at routes'):
        read_steps(Cursor(msgspec.Raw(b"5"), "routes[1].steps"), texts=(DERIVE,))
