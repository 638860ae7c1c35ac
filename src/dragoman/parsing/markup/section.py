"""The section around the calls of a reply, for formats that write one.

    <｜tool▁calls▁begin｜><｜tool▁call▁begin｜>…<｜tool▁call▁end｜><｜tool▁calls▁end｜>

Text between its calls is ignored. A call in it may lack its opener.
"""

from collections.abc import Callable

from dragoman.parsing.markup import Markup
from dragoman.parsing.markup.drafts import closes_draft, cut_short
from dragoman.parsing.sink import ReadCall, ToolCallSink
from dragoman.text.scanner import Parser, Scanner, markers


def call_reader(markup: Markup, opener: str) -> ReadCall:
    """Returns the reader of what this opener begins: a call, or the section of calls."""
    return markup.calls.get(opener) or section_reader(markup)


def section_reader(markup: Markup) -> ReadCall:
    """Returns the reader of the section, which returns True unless text of the model came last."""

    def read(s: Scanner, sink: ToolCallSink, _: str) -> Parser[bool]:
        return not (yield from _read_section(markup, s, sink))

    return read


def _read_section(markup: Markup, s: Scanner, sink: ToolCallSink) -> Parser[bool]:
    """Reads the calls of a section and its closing marker. Returns True if text came last.

    Text that is not a call is noise if a call was read, and text of the answer if a call failed or none was read.
    """
    calls = markup.calls
    before, noise = s.skipped_space + markup.section[0], list[str]()
    any_call = failed = False
    while (found := (yield from _next_call(markup, s, sink, sink.text if failed else noise.append))) in ("", *calls):
        if noise:
            sink.warn("text_between_calls_dropped", "dropped text between calls", "".join(noise))
            noise.clear()
        if any_call:
            s.skipped_space = ""
        elif not failed:
            s.skipped_space = before + s.skipped_space
        reader = calls[found] if found else next(iter(calls.values()))
        is_complete = yield from reader(s, sink, found)
        if is_complete and not found:
            sink.warn("missing_opening_tag", f"expected {next(iter(calls))} before the call")
        any_call, failed = any_call or is_complete, not is_complete
        if failed:
            cut_short(s, sink.text)
    return _section_end(s, sink, (before, "".join(noise), found or ""), any_call, failed)


def _next_call(markup: Markup, s: Scanner, sink: ToolCallSink, emit: Callable[[str], None]) -> Parser[str | None]:
    """Returns the opener of the next call in a section ("" if it is missing) or the closing marker; None if the section
    ends without."""
    closes = closes_draft(sink)
    ends, s.skipped_space = (*markup.calls, markup.section[1], *filter(None, [closes])), ""
    name = (yield from s.field(markers(markup.name_end, *ends))) if markup.name_end else None
    s.pos -= len("".join(name or ()))
    if name and name[1] == markup.name_end:
        return ""
    found = yield from s.until(markers(*ends), emit)
    s.pos -= len(found) if found == closes else 0
    return None if found in ("", closes) else found


def _section_end(s: Scanner, sink: ToolCallSink, raw: tuple[str, str, str], any_call: bool, failed: bool) -> bool:
    """Handles the end of a section. `raw` is its opener, noise and closer. Returns True if text came last."""
    opener, noise, closer = raw
    if any_call or failed:
        if noise:
            sink.warn("text_between_calls_dropped", "dropped text between calls", noise)
        if not any_call:
            sink.text(s.skipped_space + closer)
        return failed and not (any_call and closer)
    if noise and s.truncated:
        sink.warn("truncated_call", "the reply was cut off before the call had a name", opener + noise)
    elif noise:
        sink.text(opener + noise + s.skipped_space + closer)
    else:
        sink.warn("empty_call_section", f"dropped {opener.strip()} with no call after it", opener + closer)
    return bool(noise)
