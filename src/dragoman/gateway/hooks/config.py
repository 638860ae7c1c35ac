"""Settings of hooks: the section `[hooks]`."""

from typing import Annotated, Any

import msgspec

from dragoman.schema.setting import setting


class HooksConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Which hooks of installed packages act, and within which limits."""

    enabled: Annotated[
        tuple[str, ...],
        setting(
            "Hooks that act, by the names of their entry points (docs/plugins.md); an installed one alone does not."
        ),
    ] = ()
    timeout_s: Annotated[float, setting("Time limit of each call of a hook, in seconds.", gt=0)] = 5.0
    fail_closed: Annotated[
        bool,
        setting(
            "Whether a request or tool call is refused if a hook that checks it fails or takes too long. `false`: it "
            "is allowed."
        ),
    ] = True
    settings: Annotated[dict[str, dict[str, Any]], setting("Settings of the hooks themselves, a table for each.")] = {}
