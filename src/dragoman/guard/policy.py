"""What the guard does with the calls of an answer; the settings `[guard]` say it, and a request may."""

from typing import Final, Literal, TypeAlias, get_args

import msgspec

from dragoman.core import resolve
from dragoman.guard import steps

Delivery: TypeAlias = Literal["stream", "short", "atomic"]
DELIVERIES: Final[tuple[Delivery, ...]] = get_args(Delivery)
STEPS: Final = (*resolve.STEPS, *steps.STEPS)
"""All that may be set right in a call that has been read."""
HOLD_CHARS: Final = 4096
"""Arguments of this length take a model of 20 tokens a second a minute; what is longer is a file, as a rule."""


class Policy(msgspec.Struct, frozen=True):
    """For one answer."""

    delivery: Delivery = "short"
    """`stream`: arguments flow as they come, and are only looked at. `short`: a call is held until it is whole, and
    flows from `hold_chars` on. `atomic`: each is held, and one that is not right becomes words."""
    hold_chars: int = HOLD_CHARS
    steps: frozenset[str] = frozenset(STEPS)
    """Of mending."""
    asks_again: bool = True
    """A model whose call is not right is asked once more."""
    again_tokens: int = 2048
    again_s: float = 60.0
    repeats: int = 0
    """The same call may be made so often since the user's last words; 0: as often as the model likes."""
    calls: int = 0
    """Calls in one answer; 0: any number."""
