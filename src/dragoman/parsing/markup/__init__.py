"""The structure of a reply as text, reasoning and calls, each opened by a marker.

    Plan.</think>Checking.<tool_call>…</tool_call>

A marker is recognised only where it can mean something: reasoning begins at the start of the reply or after a call, not
in prose; an unmatched closing marker is dropped only after a call. The format supplies the reader that continues after
an opener. `reply.py` reads a reply, `reasoning.py` and `section.py` the parts of it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from dragoman.parsing.sink import ReadCall
from dragoman.parsing.untagged.untagged_json import NO_TAG, Tag


@dataclass(frozen=True, slots=True)
class Markup:
    """The markers of a format."""

    calls: Mapping[str, ReadCall]
    """Reader of a call by its opening marker."""
    reasoning_tags: Mapping[str, str] = field(default_factory=dict)
    """Closing marker of reasoning by its opening marker; empty: the format has none."""
    section: tuple[str, str] = ("", "")
    """Markers around all calls; text between the calls in it is ignored."""
    name_end: str = ""
    """The marker after a call's name. If set, a call in a section may lack its opener."""
    closers: tuple[str, ...] = ()
    """Markers that end a call; an extra one after a call is dropped with a warning."""
    result_markers: tuple[str, ...] = ()
    """Markers of tool results in the prompt; after a call, a result that the model writes itself is fabricated."""
    ignored_wrappers: tuple[str, ...] = ()
    """Markers around an answer without a meaning of their own; reasoning may begin after them."""
    boxes: tuple[str, ...] = ()
    """Markers around a part of an answer without a meaning of their own."""
    keep_whitespace: bool = False
    """True if white space next to a marker is the model's own text, not framing."""
    answer_wrappers: Mapping[str, str] = field(default_factory=dict)
    """Closing marker of the answer by its opening marker. It opens where reasoning could begin, and closes where only
    calls may follow."""
    untagged_calls: Mapping[str, ReadCall] = field(default_factory=dict)
    """Readers of calls without an opener, by the first character of a reply (after any reasoning)."""
    example_tag: Tag = NO_TAG
    """The tags around a call, for formats whose small models write plain JSON instead, and in which calls in code are
    examples, not calls."""

    def __post_init__(self) -> None:
        # The reader skips white space before a closer, so one that begins with white space would never be found.
        object.__setattr__(self, "closers", tuple(closer.lstrip() for closer in self.closers))

    @property
    def marks(self) -> tuple[str, ...]:
        """All markers that contain a letter and so do not occur in ordinary text."""
        pairs = (*self.reasoning_tags.items(), *self.answer_wrappers.items(), self.section)
        lists = (tuple(self.calls), self.closers, self.result_markers, self.ignored_wrappers, self.boxes)
        marks = dict.fromkeys(mark.strip() for marks in (*pairs, *lists) for mark in marks)
        return tuple(mark for mark in marks if any(map(str.isalpha, mark)))

    @property
    def openers(self) -> tuple[str, ...]:
        """Markers that begin a call or the section of calls."""
        return tuple(filter(None, (*self.calls, self.section[0])))

    @property
    def control_tokens(self) -> tuple[str, ...]:
        """Markers that begin or end reasoning anywhere: control tokens, which prose does not contain."""
        return tuple(mark for pair in self.reasoning_tags.items() for mark in pair if is_control_token(mark))

    @property
    def answer_starts(self) -> tuple[str, ...]:
        """Markers that end open reasoning, because only an answer has them."""
        return tuple(mark for mark in (*self.ignored_wrappers, *self.answer_wrappers) if is_control_token(mark))

    @property
    def reasoning_closers(self) -> tuple[str, ...]:
        """Markers that a model still writes after a call has ended its reasoning, without those that could be prose."""
        return tuple(closer for closer in self.reasoning_tags.values() if not closer[0].isalpha())

    @property
    def ends(self) -> tuple[str, ...]:
        """Markers that may follow the last call of a reply."""
        return (
            *self.closers,
            *self.ignored_wrappers,
            *self.boxes,
            *self.answer_wrappers.values(),
            *filter(None, self.section[1:]),
        )


def is_control_token(mark: str) -> bool:
    """Returns True if the marker has the form of a control token, which never occurs in prose."""
    return mark.startswith("<") and ("|" in mark or "｜" in mark)
