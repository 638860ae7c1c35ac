"""Settings of a format of tool calls; separate from what reads it, which takes longer to import."""

from typing import Annotated

import msgspec

from dragoman.schema.setting import setting


class TagFormatConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Settings of one format of tool calls; markers are written exactly as they are here."""

    opener: Annotated[str, setting("Text that begins a call, such as `<call>`.")]
    closer: Annotated[str, setting("Text that ends a call; empty: the end of its JSON object does.")] = ""
    name_end: Annotated[
        str,
        setting(
            "Text between the tool's name, which follows `opener`, and the arguments. Empty: name and arguments are "
            "members of one JSON object."
        ),
    ] = ""
    name_key: Annotated[str, setting("Key of the tool's name in the JSON object.")] = "name"
    arguments_key: Annotated[str, setting("Key of the arguments in the JSON object.")] = "arguments"
    reasoning: Annotated[
        tuple[str, ...], setting("The two texts around reasoning, such as `<think>` and `</think>`; empty: none.")
    ] = ()
    result: Annotated[
        tuple[str, ...], setting("The two texts around a tool result; `{name}` and `{id}` are those of its call.")
    ] = ("<tool_response>\n", "\n</tool_response>")
