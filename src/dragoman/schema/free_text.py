"""Describes tools with free-text input (not JSON) as functions of one string."""

import json
from typing import Final

from dragoman.core.messages import JsonText

INPUT: Final = "input"
"""The name of the string parameter."""


def free_text(syntax: str = "", grammar: str = "") -> JsonText:
    """Returns the parameters of such a function.

    Args:
        syntax: The kind of grammar, such as `lark`; used only with `grammar`.
        grammar: The grammar of the text, shown to the model as a description; "" for any text.
    """
    text = {"type": "string"}
    if grammar:
        text["description"] = f"Text of this {syntax} grammar:\n{grammar}"
    schema = {"type": "object", "properties": {INPUT: text}, "required": [INPUT], "additionalProperties": False}
    return json.dumps(schema, ensure_ascii=False)
