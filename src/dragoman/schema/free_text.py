"""Tools that take free text rather than JSON, as functions of one string."""

import json
from typing import Final

from dragoman.core.messages import JsonText

INPUT: Final = "input"
"""The one string that such a tool is offered with."""


def free_text(syntax: str = "", grammar: str = "") -> JsonText:
    """Returns the schema of such a function; the model reads the grammar, where there is one, as a description."""
    text = {"type": "string"}
    if grammar:
        text["description"] = f"Text of this {syntax} grammar:\n{grammar}"
    schema = {"type": "object", "properties": {INPUT: text}, "required": [INPUT], "additionalProperties": False}
    return json.dumps(schema, ensure_ascii=False)
