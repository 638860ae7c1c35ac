"""Settings of an upstream server, separate from its backend so that they can be read without the `server` extra."""

from typing import Annotated, Any

import msgspec


def _doc(text: str, **limits: Any) -> msgspec.Meta:
    return msgspec.Meta(description=text, **limits)


class PerModel(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Settings for models whose names match a pattern; an empty field means that the server's own setting applies."""

    mode: str = ""
    format: str = ""
    endpoint: str = ""
    template: str = ""


class HttpConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Settings of one upstream server that speaks one of the APIs."""

    url: Annotated[str, _doc("Where it is, as clients of its API are told: `http://127.0.0.1:1234/v1`.")]
    api: Annotated[str, _doc("The API that it is asked by: openai_chat, openai_responses or anthropic_messages.")] = (
        "openai_chat"
    )
    kind: Annotated[
        str, _doc("The kind of server it is, such as vllm or lm_studio (docs/kinds.md); `dragoman probe` tells it.")
    ] = ""
    key: Annotated[str, _doc("The API key that it wants; empty: none.")] = ""
    key_env: Annotated[str, _doc("The variable of the environment that holds the key.")] = ""
    proxy: Annotated[
        str,
        _doc(
            "The HTTP proxy through which it is reached; empty: that of HTTPS_PROXY or HTTP_PROXY, except for this "
            "machine and the hosts of NO_PROXY; `none`: none."
        ),
    ] = ""
    models: Annotated[tuple[str, ...], _doc("Models to offer; empty: those that it lists itself.")] = ()
    schemas: Annotated[
        str, _doc("Whose JSON Schemas it takes, such as llama_cpp or ollama; empty: those of its kind, or API.")
    ] = ""
    max_tokens: Annotated[int, _doc("Most tokens of a reply; a request for more is lowered. 0: any.", ge=0)] = 0
    context_window: Annotated[
        int,
        _doc(
            "Context that its models are run with, in tokens, where it cuts longer prompts without a word (Ollama); "
            "what is surely longer is refused. 0: not known.",
            ge=0,
        ),
    ] = 0
    mode: Annotated[
        str,
        _doc(
            "Who writes the tools and who reads the calls: `native` the server, `parse` the server and Dragoman, "
            "`inject` Dragoman both; `auto` what is known of the model, else native."
        ),
    ] = "auto"
    format: Annotated[str, _doc("What its models write calls in (`dragoman formats`); empty: by their names.")] = ""
    per_model: Annotated[
        dict[str, PerModel],
        _doc("`mode`, `format`, `endpoint` and `template` of models of certain names, such as `qwen2.5-coder*`."),
    ] = {}
    endpoint: Annotated[
        str, _doc("In mode `inject`, what is asked: `chat`, or `completions` with a prompt that Dragoman renders.")
    ] = "chat"
    template: Annotated[
        str,
        _doc(
            "The file of the model's chat template. `completions` are rendered by it (empty: by what llama.cpp's "
            "server tells); elsewhere it says what the model writes, and whether the prompt opens reasoning."
        ),
    ] = ""
    prompt_trim: Annotated[
        str,
        _doc(
            "How far tool descriptions and the system prompt are trimmed for a local model: off, tools, aggressive or "
            "max."
        ),
    ] = "off"
    prompt_tokens: Annotated[
        int,
        _doc(
            "Most tokens of an agent's instructions and tools; more are cut further than by `prompt_trim`. 0: any.",
            ge=0,
        ),
    ] = 0
    tools: Annotated[
        tuple[str, ...],
        _doc("Tools that stay where `prompt_tokens` leaves no room for all, the most important first."),
    ] = ()
    trusted: Annotated[
        bool, _doc("Its streams are as its API has them: clients of that API get its answers unread, calls unguarded.")
    ] = False
    compaction: Annotated[
        str,
        _doc(
            "Who compacts conversations of Responses clients such as Codex: `server`, `dragoman` by a summary of the "
            "same model, or `auto`, the server where it is OpenAI's, Azure's or xAI's."
        ),
    ] = "auto"
    max_concurrency: Annotated[int, _doc("Requests that it gets at once; 0: as many as come.", ge=0)] = 0
    max_queue: Annotated[
        int, _doc("Requests that may wait for a place where `max_concurrency` is set; more get 429.", ge=0)
    ] = 16
    retries: Annotated[int, _doc("How often a failed request is retried, if no response has begun.", ge=0, le=10)] = 2
    rescue: Annotated[
        bool, _doc("Whether calls that the server leaves in its text, and that name an offered tool, are made calls.")
    ] = True
    probe: Annotated[
        bool | None,
        _doc(
            "Whether a model of mode `auto` is measured by about ten short requests, in the background after its first "
            "answer (docs/probe.md). Unset: yes, unless the server has a key, as its requests may cost money."
        ),
    ] = None
    connect_timeout_s: Annotated[float, _doc("Time to reach it, in seconds.", gt=0)] = 10.0
    first_byte_s: Annotated[
        float, _doc("Time until an answer begins, in seconds; a local model may read a long prompt for minutes.", gt=0)
    ] = 600.0
    silence_s: Annotated[
        float, _doc("Silence in an answer that has begun after which it is given up, in seconds.", gt=0)
    ] = 300.0
