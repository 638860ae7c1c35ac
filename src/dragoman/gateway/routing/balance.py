"""Orders the models of a route: by weight, by load, or by session.

    -ln(u) / weight         the model with the smallest value is first

With a random `u` in (0, 1) for each model, each is first in proportion to its weight. With a `u` that is a hash of
session and model, a session always has the same order, and a model that is added or removed moves only its own share of
the sessions (rendezvous hashing).
"""

import math
from collections.abc import Callable, Mapping
from hashlib import blake2b
from typing import Final

from dragoman.core.messages import SYSTEM_ROLES, Request, Text

_HASH_BYTES: Final = 8
_HASHES: Final = float(2 ** (8 * _HASH_BYTES))
_PREFIX_CHARS: Final = 1000


def weighted(weights: Mapping[str, float], random: Callable[[], float]) -> list[str]:
    """Returns the names in random order: each is first in proportion to its weight.

    Args:
        weights: Each name with its weight, which is above 0.
        random: Returns a random number from 0 up to, but not including, 1.
    """
    drawn = {name: _distance(1 - random(), weight) for name, weight in weights.items()}
    return sorted(drawn, key=drawn.__getitem__)


def sticky(weights: Mapping[str, float], session: str) -> list[str]:
    """Returns the names in an order that is always the same for a session.

    Args:
        weights: Each name with its weight, which is above 0.
        session: The session.
    """
    hashed = {name: _distance(_hash(session, name), weight) for name, weight in weights.items()}
    return sorted(hashed, key=hashed.__getitem__)


def least_busy(weights: Mapping[str, float], load: Callable[[str], float]) -> list[str]:
    """Returns the names, those with the least load for their weight first; equal ones in the order of the settings.

    Args:
        weights: Each name with its weight, which is above 0.
        load: Returns the number of requests that a name has.
    """
    return sorted(weights, key=lambda name: (load(name) + 1) / weights[name])


def conversation_of(request: Request) -> str:
    """Returns the beginning of the conversation: in later requests of the same conversation it is the same."""
    texts: list[str] = [request.model]
    for message in request.messages:
        texts += [part.text[:_PREFIX_CHARS] for part in message.parts[:2] if type(part) is Text]
        if message.role not in SYSTEM_ROLES:
            break
    return "\0".join(texts)


def _distance(uniform: float, weight: float) -> float:
    return -math.log(uniform) / weight


def _hash(session: str, name: str) -> float:
    """Returns a number above 0, up to 1."""
    digest = blake2b(f"{session}\0{name}".encode("utf-8", "surrogatepass"), digest_size=_HASH_BYTES).digest()
    return float(int.from_bytes(digest) + 1) / _HASHES
