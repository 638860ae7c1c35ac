"""The description and limits of a setting, for docs/configuration.md and the JSON Schema of the settings."""

from collections.abc import Sequence
from typing import Any

import msgspec


def setting(description: str, *, choices: Sequence[str] = (), **limits: Any) -> msgspec.Meta:
    """Returns the metadata of a setting, for `typing.Annotated`.

    Args:
        description: What the setting does, with the unit of its value.
        choices: The allowed values. They are listed in the JSON Schema; the code that uses the setting validates it.
        **limits: Limits of the value that msgspec checks, such as `ge=0`.
    """
    extra = {"enum": list(choices)} if choices else None
    return msgspec.Meta(description=description, extra_json_schema=extra, **limits)
