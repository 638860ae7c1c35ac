"""GET and DELETE /v1/examples: how many examples of tool calls the key's requests have left, and their end."""

from typing import Final

import msgspec

from dragoman.core.client import ClientFacts
from dragoman.core.errors import NotFoundError
from dragoman.gateway.examples.memory import ExampleMemory
from dragoman.off_loop import off_loop

EXAMPLES_PATH: Final = "/v1/examples"
EXAMPLES_METHODS: Final = ("GET", "DELETE", "HEAD", "OPTIONS")


async def examples_body(memory: ExampleMemory | None, method: str, client: ClientFacts) -> bytes:
    """Returns the numbers of a key's examples as JSON; after `DELETE`, of those that were deleted.

    Args:
        memory: The examples of all keys; None: they are off.
        method: The HTTP method.
        client: The sender, with the name of its key.

    Raises:
        NotFoundError: Examples are off.
        BackendUnavailableError: The store cannot be used.
    """
    if memory is None:
        raise NotFoundError("expected a gateway that learns examples, got one with examples.enabled = false")
    is_deletion = method == "DELETE"
    examples = await off_loop(memory.does_io, memory.delete if is_deletion else memory.usage, client)
    return msgspec.json.encode(
        {
            "object": "examples",
            "deleted": is_deletion,
            "tools": len(examples.tools),
            "examples": examples.count,
            "chars": examples.chars,
        }
    )
