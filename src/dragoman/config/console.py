"""Settings of the console: the section `[console]`."""

from typing import Annotated

import msgspec

from dragoman.schema.setting import setting


class ConsoleConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Whether the console is served."""

    enabled: Annotated[
        bool | None,
        setting(
            "Whether the console is served at `/console` (docs/console.md); unset: if only this machine can reach the "
            "gateway."
        ),
    ] = None
