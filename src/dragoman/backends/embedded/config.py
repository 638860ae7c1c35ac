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
        int, msgspec.Meta(ge=0, description="Tokens of context per request; 0: the model's own, at most 8192.")
    ] = 0
    prompt_trim: Annotated[
        str,
        msgspec.Meta(
            description="How far words about tools and of the system's are cut: none, tools, aggressive or least."
        ),
    ] = "off"
    first_answer_s: Annotated[
        float,
        msgspec.Meta(
            ge=0,
            description="Time in which the first answer of a conversation should begin, in seconds: an agent's "
            "instructions and tools are cut to what the model reads in it, measured at loading. 0: only `prompt_trim` "
            "counts.",
        ),
    ] = 0
    tools: Annotated[
        tuple[str, ...],
        msgspec.Meta(
            description="Tools that stay where `first_answer_s` leaves no room for all, the most important first."
        ),
    ] = ()
    parallel: Annotated[int, msgspec.Meta(ge=1, le=64, description="Requests answered at once.")] = 2
    queue: Annotated[int, msgspec.Meta(ge=0, description="Requests that may wait for a place; more get 429.")] = 16
    threads: Annotated[
        int,
        msgspec.Meta(
            ge=0,
            description="Threads of the engine; 0: one less than the cores, and all of them while a prompt is read.",
        ),
    ] = 0
    memory_mb: Annotated[
        int, msgspec.Meta(ge=0, description="Memory limit of the engine's process, in MB; 0: none.")
    ] = 0
    load_timeout_s: Annotated[float, msgspec.Meta(gt=0, description="Time for loading the weights, in seconds.")] = 300
    silence_s: Annotated[
        float, msgspec.Meta(gt=0, description="Silence of a busy engine after which it is restarted, in seconds.")
    ] = 180
    pull: Annotated[bool, msgspec.Meta(description="Fetch missing weights at start.")] = True
