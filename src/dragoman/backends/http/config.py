"""Settings of an upstream server, separate from its backend so that they can be read without the `server` extra."""

from typing import Annotated

import msgspec

from dragoman.parsing.tag_format_config import TagFormatConfig
from dragoman.schema.setting import setting


class ModelOverride(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Settings for models whose names match a pattern; an empty field means that the upstream's own setting applies."""

    tool_mode: str = ""
    call_format: str = ""
    endpoint: str = ""
    chat_template: str = ""


class HttpConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Settings of one upstream server that speaks one of the APIs."""

    url: Annotated[str, setting("Base URL, as for clients of its API: `http://127.0.0.1:1234/v1`.")]
    api: Annotated[
        str, setting("API of the server.", choices=("openai_chat", "openai_responses", "anthropic_messages"))
    ] = "openai_chat"
    provider: Annotated[
        str,
        setting(
            "Server type, such as vllm or lm_studio (docs/supported-servers.md); empty: unknown. "
            "`dragoman probe URL` reports it."
        ),
    ] = ""
    api_key: Annotated[str, setting("API key that is sent to the server; empty: none.")] = ""
    api_key_env: Annotated[
        str, setting("Environment variable that contains the API key; empty: `api_key` is used.")
    ] = ""
    proxy: Annotated[
        str,
        setting(
            "URL of the HTTP proxy for this server; empty: the one of HTTPS_PROXY or HTTP_PROXY, except for loopback "
            "addresses and the hosts of NO_PROXY; `none`: no proxy."
        ),
    ] = ""
    models: Annotated[tuple[str, ...], setting("Models to serve; empty: all models that the server lists.")] = ()
    schema_profile: Annotated[
        str,
        setting(
            "Which JSON Schema keywords the server accepts, such as llama_cpp or ollama; empty: decided by `provider`, "
            "else by `api`."
        ),
    ] = ""
    max_output_tokens: Annotated[
        int, setting("Maximum output tokens of a response; larger requests are lowered to it. 0: no limit.", ge=0)
    ] = 0
    context_window: Annotated[
        int,
        setting(
            "Context window of the models, in tokens, for servers that truncate longer prompts without an error "
            "(Ollama): prompts that are certainly longer are rejected. 0: unknown.",
            ge=0,
        ),
    ] = 0
    tool_mode: Annotated[
        str,
        setting(
            "How tools are described and calls are parsed. `native`: the server does both. `parse`: the server "
            "describes the tools, Dragoman parses the calls. `prompt`: Dragoman does both. `auto`: as probed, else "
            "`native`.",
            choices=("auto", "native", "parse", "prompt"),
        ),
    ] = "auto"
    call_format: Annotated[
        str, setting("Format in which the models write tool calls (`dragoman formats`); empty: by the model's name.")
    ] = ""
    formats: Annotated[
        dict[str, TagFormatConfig],
        setting("Formats that only models of this server write, each a table as in `[formats]`."),
    ] = {}
    model_overrides: Annotated[
        dict[str, ModelOverride],
        setting(
            "`tool_mode`, `call_format`, `endpoint` and `chat_template` for models whose names match a pattern, such "
            "as `qwen2.5-coder*`."
        ),
    ] = {}
    endpoint: Annotated[
        str,
        setting(
            "Endpoint that is used in tool mode `prompt`: `chat`, or `completions` with a prompt rendered here.",
            choices=("chat", "completions"),
        ),
    ] = "chat"
    chat_template: Annotated[
        str,
        setting(
            "File of the model's chat template, which renders prompts for `completions` and otherwise shows the call "
            "format and whether the prompt opens reasoning. Empty: for `completions`, the template that the server "
            "reports (llama.cpp)."
        ),
    ] = ""
    prompt_trim: Annotated[
        str,
        setting(
            "How far tool descriptions and the system prompt are trimmed for a local model (docs/local.md).",
            choices=("off", "tools", "aggressive", "max"),
        ),
    ] = "off"
    prompt_tokens: Annotated[
        int,
        setting(
            "Maximum tokens of an agent's instructions and tools; longer ones are trimmed further than `prompt_trim` "
            "says. 0: no limit.",
            ge=0,
        ),
    ] = 0
    tools: Annotated[
        tuple[str, ...],
        setting("Tools that are kept if `prompt_tokens` leaves no room for all, the most important first."),
    ] = ()
    passthrough: Annotated[
        bool,
        setting(
            "Whether clients of the server's own API get its responses unchanged and unparsed, so without checks of "
            "tool calls. Always on for the providers openai and anthropic."
        ),
    ] = False
    compaction: Annotated[
        str,
        setting(
            "Who compacts conversations of Responses clients such as Codex: `server`, `dragoman` (by a summary of the "
            "same model), or `auto`: the server if it is OpenAI's, Azure's or xAI's.",
            choices=("auto", "server", "dragoman"),
        ),
    ] = "auto"
    max_concurrency: Annotated[int, setting("Maximum concurrent requests; 0: no limit.", ge=0)] = 0
    max_queue: Annotated[
        int,
        setting("Maximum requests that wait for a slot if `max_concurrency` is set; more get status 429.", ge=0),
    ] = 16
    max_retries: Annotated[
        int,
        setting("Maximum retries of a failed request, 0 to 10, as long as no response has begun.", ge=0, le=10),
    ] = 2
    recover_leaked_calls: Annotated[
        bool,
        setting("Whether calls of offered tools that the server leaves in the text become tool calls."),
    ] = True
    auto_probe: Annotated[
        bool | None,
        setting(
            "Whether a model in tool mode `auto` is probed with about ten short requests, in the background after its "
            "first response (docs/probe.md). Unset: only if the upstream has no API key, as requests may cost money."
        ),
    ] = None
    connect_timeout_s: Annotated[float, setting("Timeout to connect, in seconds.", gt=0)] = 10.0
    first_byte_timeout_s: Annotated[
        float,
        setting("Timeout until a response begins, in seconds; a local model may read a long prompt for minutes.", gt=0),
    ] = 600.0
    idle_timeout_s: Annotated[
        float, setting("Maximum time between two parts of a response that has begun, in seconds.", gt=0)
    ] = 300.0
