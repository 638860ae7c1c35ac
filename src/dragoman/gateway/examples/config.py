"""Settings of learned examples: the section `[examples]`."""

from typing import Annotated

import msgspec

from dragoman.schema.setting import setting


class ExamplesConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Whether calls that worked become examples in the prompts of small models, and within which limits."""

    enabled: Annotated[
        bool,
        setting("Whether calls that worked are stored as examples for later conversations (docs/guard.md)."),
    ] = False
    upstreams: Annotated[
        tuple[str, ...],
        setting("Names of the upstreams whose prompts get examples, where Dragoman writes the tools into the prompt."),
    ] = ("embedded",)
    max_per_tool: Annotated[int, setting("Maximum examples of a tool.", ge=1, le=5)] = 2
    max_chars: Annotated[int, setting("Maximum characters of the arguments of an example.", ge=20, le=4000)] = 400
    max_tools: Annotated[int, setting("Maximum tools with examples of each API key.", ge=1, le=1000)] = 200
    max_prompt_chars: Annotated[int, setting("Maximum characters of all examples in a prompt.", ge=0)] = 2000
    ttl_s: Annotated[float, setting("New conversations get no example that is older, in seconds.", gt=0)] = 7 * 86_400.0
