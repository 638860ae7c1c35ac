"""Settings of the embedded model, separate from its backend so that they can be read without the `embedded` extra."""

from typing import Annotated

import msgspec


class EmbeddedConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The embedded model (llama.cpp)."""

    enabled: Annotated[bool, msgspec.Meta(description="Whether to serve an embedded model.")] = True
    model: Annotated[
        str, msgspec.Meta(description="A known model (`dragoman pull --list`) or a .gguf file; empty: the default.")
    ] = ""
    context_window: Annotated[
        int, msgspec.Meta(ge=0, description="Context window of each request, in tokens; 0: the model's, at most 8192.")
    ] = 0
    prompt_trim: Annotated[
        str,
        msgspec.Meta(
            description="How far tool descriptions and the system prompt are trimmed: off, tools, aggressive or max "
            "(docs/local.md)."
        ),
    ] = "off"
    first_response_target_s: Annotated[
        float,
        msgspec.Meta(
            ge=0,
            description="Time in which the first response of a conversation should begin, in seconds: an agent's "
            "instructions and tools are trimmed to what the model reads in this time, measured when it is loaded. 0: "
            "only `prompt_trim` counts.",
        ),
    ] = 0
    tools: Annotated[
        tuple[str, ...],
        msgspec.Meta(
            description="Tools that stay if `first_response_target_s` leaves no room for all, the most important first."
        ),
    ] = ()
    max_concurrency: Annotated[int, msgspec.Meta(ge=1, le=64, description="Maximum concurrent requests.")] = 2
    max_queue: Annotated[
        int, msgspec.Meta(ge=0, description="Maximum requests that wait for a concurrency slot; more get status 429.")
    ] = 16
    threads: Annotated[
        int,
        msgspec.Meta(
            ge=0,
            description="Threads of the engine; 0: one less than the cores, and all cores while a prompt is read.",
        ),
    ] = 0
    memory_limit_mb: Annotated[
        int, msgspec.Meta(ge=0, description="Memory limit of the engine's process, in MB; 0: none.")
    ] = 0
    load_timeout_s: Annotated[float, msgspec.Meta(gt=0, description="Timeout to load the weights, in seconds.")] = 300
    stall_timeout_s: Annotated[
        float, msgspec.Meta(gt=0, description="Time without output after which a busy engine is restarted, in seconds.")
    ] = 180
    auto_download: Annotated[bool, msgspec.Meta(description="Whether missing weights are downloaded at start.")] = True
