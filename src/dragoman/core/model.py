"""A model as backends list it."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Model:
    """A model that a backend offers."""

    id: str
    context_tokens: int | None = None
    owner: str = "dragoman"
    aliases: tuple[str, ...] = ()
    display_name: str = ""
    """For people, as the server has it; empty: the id."""
    created: int = 0
    """Seconds since 1970, as the server has it; 0: not known."""
