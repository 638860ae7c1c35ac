"""Settings of the embedded model, separate from its backend so that they can be read without the `embedded` extra."""

from typing import Annotated, Final

import msgspec

from dragoman.schema.setting import setting

CACHE_TYPE_BYTES: Final = {
    "f32": 4.0,
    "f16": 2.0,
    "bf16": 2.0,
    "q8_0": 34 / 32,
    "q5_1": 24 / 32,
    "q5_0": 22 / 32,
    "q4_1": 20 / 32,
    "q4_0": 18 / 32,
    "iq4_nl": 18 / 32,
}
"""Number types of the KV cache, with the bytes that a number takes: quantized numbers are stored in blocks of 32."""
CONTEXT_WINDOW: Final = 8192
"""Context per request unless set: that of the small model. A larger one costs memory for each concurrency slot."""


class EmbeddedConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The embedded model (llama.cpp)."""

    enabled: Annotated[bool, setting("Whether to serve an embedded model.")] = True
    model: Annotated[str, setting("A known model (`dragoman pull --list`) or a .gguf file; empty: the default.")] = ""
    projector: Annotated[
        str,
        setting(
            "Projector (mmproj, a GGUF file) with which the model sees images or hears sound; empty: the only "
            "`mmproj*.gguf` in the folder of a `model` that is a file."
        ),
    ] = ""
    context_window: Annotated[
        int, setting("Context window of each request, in tokens; 0: the model's, at most 8192.", ge=0)
    ] = 0
    prompt_trim: Annotated[
        str,
        setting(
            "How far tool descriptions and the system prompt are trimmed (docs/local.md).",
            choices=("off", "tools", "aggressive", "max"),
        ),
    ] = "off"
    first_response_target_s: Annotated[
        float,
        setting(
            "Time in which the first response of a conversation should begin, in seconds: an agent's "
            "instructions and tools are trimmed to what the model reads in this time, measured when it is loaded. 0: "
            "only `prompt_trim` counts.",
            ge=0,
        ),
    ] = 0
    tools: Annotated[
        tuple[str, ...],
        setting("Tools that stay if `first_response_target_s` leaves no room for all, the most important first."),
    ] = ()
    plan_calls: Annotated[
        str,
        setting(
            "Whether a model that counts several needed calls has to write as many; `auto`: models with a measured "
            "threshold (none: docs/accuracy.md says why); `on`: all. Agents with a tool that runs commands are left "
            "out.",
            choices=("auto", "on", "off"),
        ),
    ] = "auto"
    decide_calls: Annotated[
        bool,
        setting(
            "Whether a model that calls tools where none fits is asked, at a new user turn with a free choice, whether "
            "it needs a call, and answers in words if not (docs/accuracy.md): two more tokens, for models with a "
            "measured threshold (`dragoman models calibrate NAME`). Agents with a tool that runs commands are left out."
        ),
    ] = True
    folders: Annotated[
        tuple[str, ...], setting("Folders whose .gguf files are served too, also those in folders below.")
    ] = ()
    discover: Annotated[
        bool, setting("Whether models of Ollama, LM Studio and the Hugging Face cache are served too.")
    ] = True
    keep_alive_s: Annotated[
        float,
        setting(
            "Time without requests after which a model is unloaded, in seconds; 0: at once, -1: never. The model at "
            "`model` stays until another needs its memory.",
            ge=-1,
        ),
    ] = 300
    pinned: Annotated[tuple[str, ...], setting("Models that are loaded at start and never unloaded.")] = ()
    memory_mb: Annotated[
        int, setting("Memory for all loaded models together, in MB; 0: what the machine has available.", ge=0)
    ] = 0
    max_concurrency: Annotated[int, setting("Maximum concurrent requests.", ge=1, le=64)] = 2
    max_queue: Annotated[
        int, setting("Maximum requests that wait for a concurrency slot; more get status 429.", ge=0)
    ] = 16
    engine: Annotated[
        str,
        setting(
            "What runs the models: the Python package `xllamacpp`, or your own `llama-server` program (docs/gpu.md).",
            choices=("xllamacpp", "llama-server"),
        ),
    ] = "xllamacpp"
    llama_server: Annotated[
        str, setting('The program for `engine = "llama-server"`; empty: `llama-server` on the PATH.')
    ] = ""
    gpu_layers: Annotated[
        int | str,
        setting(
            'Layers of the model on the GPU: a number, `"all"`, or `"auto"`, as many as its memory has room for. '
            "Without a GPU it has no effect."
        ),
    ] = "auto"
    tensor_split: Annotated[
        tuple[float, ...],
        setting("With several GPUs, the share of the model on each, such as `[3, 1]`; empty: by their free memory."),
    ] = ()
    flash_attention: Annotated[
        str,
        setting("Flash attention; `auto`: where the hardware supports it.", choices=("auto", "on", "off")),
    ] = "auto"
    cache_type: Annotated[
        str,
        setting("Number type of the KV cache; `q8_0` halves its memory.", choices=tuple(CACHE_TYPE_BYTES)),
    ] = "f16"
    cache_type_v: Annotated[
        str,
        setting(
            "Number type of the values in the KV cache if it differs from that of the keys; empty: as `cache_type`.",
            choices=("", *CACHE_TYPE_BYTES),
        ),
    ] = ""
    batch_size: Annotated[
        int,
        setting("Prompt tokens that are read in one step; 0: 256 on the CPU, 512 with a GPU or `llama-server`.", ge=0),
    ] = 0
    threads: Annotated[
        int,
        setting("Threads of the engine; 0: one less than the cores, and all cores while a prompt is read.", ge=0),
    ] = 0
    reading_threads: Annotated[
        int, setting("Threads while a prompt is read; 0: as `threads`, or all cores if that is 0.", ge=0)
    ] = 0
    memory_limit_mb: Annotated[int, setting("Memory limit of the engine's process, in MB; 0: none.", ge=0)] = 0
    prefix_cache_mb: Annotated[
        int,
        setting(
            "Disk space for saved prompt prefixes, an agent's system text and tools, in MB, with which its next start "
            "answers at once; 0: none are saved.",
            ge=0,
        ),
    ] = 2000
    load_timeout_s: Annotated[float, setting("Timeout to load the weights, in seconds.", gt=0)] = 300
    stall_timeout_s: Annotated[
        float, setting("Time without output after which a busy engine is restarted, in seconds.", gt=0)
    ] = 180
    auto_download: Annotated[bool, setting("Whether missing weights are downloaded at start.")] = True


def context_window_of(trained: int, config: EmbeddedConfig) -> int:
    """Returns the context window of each request to a model that was trained for this one."""
    return config.context_window or min(trained, CONTEXT_WINDOW)
