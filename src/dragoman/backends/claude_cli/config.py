"""The settings of the Claude Code CLI, without its backend, so that settings can be read without its dependencies."""

from typing import Annotated, Any

import msgspec


def _doc(text: str, **limits: Any) -> msgspec.Meta:
    return msgspec.Meta(description=text, **limits)


class ClaudeCliConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The `claude` that is installed here, under its own login."""

    enabled: Annotated[bool, _doc("Serve the models of the installed `claude` (docs/claude-cli.md).")] = False
    command: Annotated[str, _doc("The program: a name that is looked for in PATH, or a path.")] = "claude"
    mode: Annotated[
        str,
        _doc("`native` by its control protocol, `text` for versions without one, `auto` by what the installed can do."),
    ] = "auto"
    models: Annotated[tuple[str, ...], _doc("Models to list besides opus, sonnet and haiku.")] = ()
    parallel: Annotated[int, _doc("Answers, and so processes, at once.", ge=1)] = 4
    queue: Annotated[int, _doc("Requests that may wait for a place; more get 429.", ge=0)] = 16
    warm: Annotated[int, _doc("Processes that wait for the next request; each takes about 200 MB.", ge=0)] = 1
    idle_s: Annotated[float, _doc("Time after which a process that waits unused is ended, in seconds.", gt=0)] = 300.0
    memory_mb: Annotated[
        int, _doc("Memory of all its processes beyond which none is kept waiting; 0: no bound.", ge=0)
    ] = 1024
    silence_s: Annotated[
        float, _doc("Longest time without a line from a process that works on an answer, in seconds.", gt=0)
    ] = 300.0
    retries: Annotated[
        int, _doc("How often it asks its own service again where that is busy or fails.", ge=0, le=10)
    ] = 2
    shared: Annotated[
        bool, _doc("Let other machines use it. A subscription is for its owner alone; an API key may be shared.")
    ] = False
    variables: Annotated[
        tuple[str, ...], _doc("Variables of the environment that it gets, besides those that it needs.")
    ] = ()
