"""The settings of the Claude Code CLI, without its backend, so that settings can be read without its dependencies."""

from typing import Annotated

import msgspec

from dragoman.schema.setting import setting


class ClaudeCliConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The `claude` that is installed here, under its own login."""

    enabled: Annotated[
        bool, setting("Whether the models of the installed `claude` are served (docs/claude-cli.md).")
    ] = False
    command: Annotated[str, setting("The program: a name that is searched in PATH, or a path.")] = "claude"
    tool_mode: Annotated[
        str,
        setting(
            "`native`: tools by its control protocol; `text`: tools as text, for versions without that protocol; "
            "`auto`: what the installed version supports.",
            choices=("auto", "native", "text"),
        ),
    ] = "auto"
    models: Annotated[tuple[str, ...], setting("Models to list besides opus, sonnet and haiku.")] = ()
    max_concurrency: Annotated[int, setting("Maximum concurrent requests; each has a process of its own.", ge=1)] = 4
    max_queue: Annotated[
        int, setting("Maximum requests that wait for a concurrency slot; more get status 429.", ge=0)
    ] = 16
    warm_processes: Annotated[
        int, setting("Idle processes kept ready for the next requests; each takes about 200 MB.", ge=0)
    ] = 1
    idle_timeout_s: Annotated[float, setting("Time after which an idle process is ended, in seconds.", gt=0)] = 300.0
    warm_memory_limit_mb: Annotated[
        int,
        setting(
            "No idle process is kept when all processes together need more memory than this, in MB; 0: no limit.", ge=0
        ),
    ] = 1024
    stall_timeout_s: Annotated[
        float, setting("Maximum time without output from a process that works on a response, in seconds.", gt=0)
    ] = 300.0
    max_retries: Annotated[
        int, setting("How often it retries a request to its service that is overloaded or fails.", ge=0, le=10)
    ] = 2
    allow_remote_clients: Annotated[
        bool,
        setting("Whether other machines may use it. A subscription is for its owner alone; an API key may be shared."),
    ] = False
    env_passthrough: Annotated[
        tuple[str, ...], setting("Environment variables that it gets in addition to those that it needs.")
    ] = ()
