"""How a reply is to be read: the options of `ReplyReader` and of all that create one."""

from collections.abc import Collection, Iterable
from typing import Final, Literal, TypeAlias

from dragoman.core.errors import UsageError
from dragoman.core.messages import FrozenStruct
from dragoman.core.tool_name_match import STEPS as NAME_REPAIRS
from dragoman.text.json_repairs import REPAIRS as JSON_REPAIRS

READER_REPAIRS: Final = frozenset((*NAME_REPAIRS, *JSON_REPAIRS))
"""Names of all repairs that are made while a call is read."""
ReaderBuffering: TypeAlias = Literal["off", "all"]


class ReaderOptions(FrozenStruct, frozen=True):
    """Options of `ReplyReader`.

    Raises:
        UsageError: an option is invalid.
    """

    prompt_suffix: str = ""
    """The part of the reply that the prompt already contains, such as `<think>`. It gives no events, except those of a
    call that it leaves open."""
    lenient: bool = False
    """True if calls without the format's tags are accepted when they name an offered tool."""
    used_ids: Collection[str] = ()
    """Call ids already used in the conversation; a repeated id is replaced."""
    buffering: ReaderBuffering = "off"
    """"off" emits arguments as they arrive; "all" emits only complete calls, and the warning `incomplete_call` with the
    text of any other."""
    control: Iterable[str] = ()
    """The texts of the model's control tokens, for an engine that passes `plain` to `feed`."""
    enabled_repairs: Collection[str] = READER_REPAIRS
    """Repairs of names (core/tool_name_match.py) and of JSON (text/json_repairs.py). A call's end names the repairs
    made; the warning `json_repaired` contains the original JSON."""

    def __post_init__(self) -> None:
        if not isinstance(self.prompt_suffix, str):
            raise UsageError(f"expected str, got {type(self.prompt_suffix).__name__} - at prompt_suffix")
        if self.buffering not in ("off", "all"):
            raise UsageError(f"expected 'off' or 'all', got {self.buffering!r} - at buffering")
