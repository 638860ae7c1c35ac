"""Checks before the agent starts: whether the server accepts the key, and how fast its model reads prompts."""

import os
import secrets
import time
from typing import Final
from urllib.parse import urlsplit

from dragoman import dialects
from dragoman.agents import Agent
from dragoman.backends.http import retry
from dragoman.backends.http.config import HttpConfig
from dragoman.catalog import tokenizers
from dragoman.cli._common import print_status
from dragoman.core.errors import BackendUnavailableError
from dragoman.core.messages import Message, Request, Text
from dragoman.host_names import LOOPBACK

FIRST_RESPONSE_S: Final = 60.0
"""Time in which the first response of a conversation should begin."""
ANY_TIME_S: Final = 86_400.0
"""Set to measure the speed without trimming anything."""
_WANTS_KEY: Final = (401, 403)
_MEASURED_S: Final = 30.0
"""Maximum time for a measurement; a server that takes longer is loading its model."""
_LINES: Final = 12
STARTING_S: Final = 5.0
"""Time for a server to start listening."""
_EVERY_S: Final = 0.25


async def check_key(server: HttpConfig, *, required: bool = True) -> None:
    """Ask a server once, by an empty request that costs nothing, whether it takes the key of its settings.

    A server that is being started gets `STARTING_S` to listen. An agent would try again for minutes and say nothing.

    Args:
        server: The server.
        required: Whether the run needs this server; False: requests go to another one if it fails.

    Raises: ConfigError: it does not take the key. BackendUnavailableError: nothing listens there, and `required`.
    """
    from dragoman.backends.probe.connect import missing_key_error, open_connection

    until_s = 0.0
    async with open_connection(server, os.environ) as connection:
        while True:
            try:
                response = await connection.request(dialects.get(server.api).path, b"{}", _JSON)
                break
            except BackendUnavailableError as error:
                if not (required and isinstance(error.__cause__, ConnectionRefusedError)):
                    return  # the agent's own request will report it
            now_s = time.monotonic()
            if until_s and now_s >= until_s:
                raise BackendUnavailableError(
                    f"expected a server at {server.url}, but the connection is refused; start the server, or name "
                    "another one: --upstream URL"
                )
            if not until_s:
                until_s = now_s + STARTING_S
                print_status(f"nothing listens at {server.url} yet; waiting {STARTING_S:.0f} s")
            await retry.sleep(_EVERY_S)
        if response.status in _WANTS_KEY:
            raise missing_key_error(server)


_JSON: Final = {"content-type": "application/json"}


def is_local(server: HttpConfig) -> bool:
    """Whether the server runs on this machine."""
    return urlsplit(server.url).hostname in LOOPBACK


async def reading_speed(server: HttpConfig, model: str) -> float:
    """Returns the speed at which this model reads prompts, in tokens per second, or 0 if it cannot be measured.

    Sends two short prompts; the first has the server load its model, and is not counted.
    """
    from dragoman.backends.probe.connect import open_connection

    dialect, vocabulary = dialects.get(server.api), tokenizers.find(model)
    async with open_connection(server, os.environ) as connection:
        for _ in range(2):
            text = "\n".join(secrets.token_hex(4) for _ in range(_LINES))  # random, so never in the prompt cache
            request = Request(model, (Message("user", (Text(text),)),), max_tokens=1)
            body = dialect.write_request(request, "").body
            began_s = time.monotonic()
            try:
                response = await connection.request(dialect.path, body, _JSON, timeout_s=_MEASURED_S)
            except BackendUnavailableError:
                return 0.0
            if response.status != 200:
                return 0.0
    return vocabulary.estimate_request(request) / (time.monotonic() - began_s)


def preface_lines(agent: Agent, model: str, tokens_per_s: float, budget_tokens: int) -> list[str]:
    """Returns what to print before the agent starts.

    Args:
        agent: the agent.
        model: the name of the model.
        tokens_per_s: speed of reading prompts; 0: unknown.
        budget_tokens: size to which the prompt is trimmed; 0: not trimmed.
    """
    if not (tokens_per_s and agent.prompt_tokens):
        return []
    first_s = agent.prompt_tokens / tokens_per_s
    lines = [
        f"{agent.title} sends about {agent.prompt_tokens:,} tokens before your own text; {model} reads "
        f"{tokens_per_s:.0f} tokens/s here: {_time(first_s)} until the first answer"
    ]
    if budget_tokens and first_s > FIRST_RESPONSE_S:
        stay = f"; of its tools {', '.join(agent.tools)} stay as far as they fit" if agent.tools else ""
        lines.append(
            f"for a first answer within {FIRST_RESPONSE_S:.0f} s its instructions and tools are cut to "
            f"{budget_tokens:,} tokens{stay}; --prompt-trim tools keeps all tools, --prompt-trim off everything"
        )
    elif not budget_tokens and first_s > FIRST_RESPONSE_S:
        lines.append("less of it is read with --prompt-trim tools, aggressive or max, or without --prompt-trim")
    return lines


def _time(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 100 else f"{seconds / 60:.0f} min"
