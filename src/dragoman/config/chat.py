"""Settings of `dragoman chat`."""

from typing import Annotated

import msgspec

from dragoman.schema.setting import setting


class ChatConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What `dragoman chat` keeps and shows."""

    history: Annotated[bool, setting("Whether typed lines are kept for the next chat (docs/chat.md).")] = True
    reasoning: Annotated[bool, setting("Whether the model's reasoning is shown.")] = True
