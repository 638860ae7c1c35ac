"""The JSON of `GET /console/api/playground/tools` and `POST /console/api/playground/tools/run`."""

import msgspec


class PlaygroundTool(msgspec.Struct):
    """A tool that the playground offers to a model, and can run."""

    name: str
    """The name for the model, of letters, digits, `_` and `-`."""
    description: str
    parameters: msgspec.Raw
    """JSON Schema of the arguments."""
    signature: str
    """Such as `get_weather(city: string)`."""
    server: str = ""
    """Name of the MCP server; "": a tool of the demonstration."""


class ToolSourceProblem(msgspec.Struct):
    """An MCP server whose tools are not offered."""

    server: str
    message: str
    """Why, and what to change."""


class PlaygroundToolsView(msgspec.Struct):
    """All tools of the playground, those of the demonstration first."""

    tools: list[PlaygroundTool]
    problems: list[ToolSourceProblem]


class PlaygroundRun(msgspec.Struct, forbid_unknown_fields=True):
    """A call to run."""

    name: str
    """The name of a tool of the list."""
    arguments: str
    """The arguments as JSON text, as the model wrote them."""


class PlaygroundImage(msgspec.Struct):
    """An image of a result."""

    media_type: str
    data: str
    """Base64."""


class PlaygroundRunView(msgspec.Struct):
    """The result of a call."""

    text: str
    is_error: bool
    """Whether the tool, or its server, reported an error; `text` is for the model in any case."""
    is_cut: bool
    """Whether `text` is only the beginning of the result, or images were left out."""
    run_ms: int
    images: list[PlaygroundImage] = []
