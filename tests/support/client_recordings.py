"""Recorded requests of real clients, without third-party text, ids, or data of the recording machine.

`--record` rewrites them (`make test ARGS="--record -n 0 -k 'codex or …'"`). Text that is not the test's own, such as a
vendor's system prompts and descriptions, becomes filler of the same length; ids become numbers of the same length.
"""

import json
import re
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from support.paths import DATA
from support.scripted_backend import Sent

FOLDER: Final = DATA / "clients"
FILLER: Final = "words of the client's maker are left out here "
SAID: Final = frozenset({"content", "description", "instructions", "definition", "output", "system", "text", "title"})
"""Members that contain text."""
SHORT_CHARS: Final = 80
"""A longer string in another member counts as text too."""
OURS_CHARS: Final = 400
"""Longer text is not the test's own, even if it contains strings of the test."""
BILLING: Final = "x-anthropic-billing-header:"
"""The start of a line that gateways recognize."""
ID: Final = re.compile(
    r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}|(?<![0-9a-f])[0-9a-f]{16,}|(?<=ses_)\w{20,}"
)


def keep(
    name: str,
    client: str,
    sent: Iterable[Sent],
    ours: Sequence[str],
    places: Iterable[Path] = (),
    *,
    how: str = "",
    growing: bool = False,
) -> None:
    """Writes the recording of one client; `ours` are strings of the test, `places` folders that it created.

    With `growing`, the requests are one conversation, and each is stored as its difference from the one before.
    """
    numbers: dict[str, str] = {}

    def plain(key: str, text: str) -> str:
        if not is_ours(text, key, ours):
            return filler(text)
        for n, place in enumerate(places):
            text = text.replace(str(place), f"/place{n}")
        return ID.sub(lambda found: _numbered(found[0], numbers), text)

    kept: list[dict[str, Any]] = []
    for path, body in sent:
        request = {"path": path, "body": each_string(json.loads(body), "", plain)}
        kept.append(request)
    lines = dict.fromkeys(json.dumps(each, ensure_ascii=False) for each in (_grown(kept) if growing else kept))
    head = {
        "client": client,
        "how": f'make test ARGS="--record -n 0 -k {how or _test_of(name)}"',
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
    }
    FOLDER.mkdir(exist_ok=True)
    said = ",\n".join(lines)
    (FOLDER / f"{name}.json").write_text(f'{json.dumps(head)[:-1]}, "requests": [\n{said}\n]}}\n')


def each_string(value: Any, key: str, change: Callable[[str, str], str]) -> Any:
    """Returns the JSON value with each string replaced by `change(string, member name)`."""
    match value:
        case dict():
            return {name: each_string(inner, name, change) for name, inner in value.items()}
        case list():
            return [each_string(inner, key, change) for inner in value]
        case str():
            return change(key, value)
    return value


def filler(text: str) -> str:
    """Filler with the length of the text."""
    kept = BILLING if text.startswith(BILLING) else ""
    return kept + (FILLER * (len(text) // len(FILLER) + 1))[: len(text) - len(kept)]


def is_ours(text: str, key: str, ours: Sequence[str]) -> bool:
    """Whether the string is the test's own text, or not text at all."""
    if len(text) <= OURS_CHARS and any(word in text for word in ours):
        return True
    return key not in SAID and len(text) <= SHORT_CHARS


def _numbered(id: str, numbers: dict[str, str]) -> str:
    """Replaces an id by a number with as many hexadecimal digits."""
    if id not in numbers:
        number = f"{len(numbers) + 1:0{len(id.replace('-', ''))}x}"
        digits = iter(number)
        numbers[id] = "".join(char if char == "-" else next(digits) for char in id)
    return numbers[id]


def _test_of(name: str) -> str:
    return f"test_{name.partition('-')[0].removeprefix('python_')}"


def _grown(requests: Sequence[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Yields the first request, then each difference: changed members, and the messages after the first `same` ones."""
    before: dict[str, Any] = {"messages": []}
    for request in requests:
        messages, body = request["body"]["messages"], request["body"]
        pairs = zip(messages, before["messages"], strict=False)
        same = next((n for n, (one, other) in enumerate(pairs) if one != other), len(before["messages"]))
        new = {name: value for name, value in body.items() if before.get(name) != value}
        assert before.keys() <= {*body, "messages"}, "a member of the request before is missing"
        yield {"path": request["path"], "same": same, "body": {**new, "messages": messages[same:]}}
        before = body


def _whole(requests: Iterable[dict[str, Any]]) -> Iterator[tuple[str, Any]]:
    """Yields path and body of each request, restored from the differences."""
    before: dict[str, Any] = {}
    for request in requests:
        body = request["body"]
        if "same" in request:
            said = before.get("messages", [])[: request["same"]]
            body = before = {**before, **body, "messages": [*said, *body["messages"]]}
        yield request["path"], body


def recorded() -> Iterator[tuple[str, Sent]]:
    """Yields each recorded request with the name of its client and its number."""
    for file in sorted(FOLDER.glob("*.json")):
        for n, (path, body) in enumerate(_whole(json.loads(file.read_text())["requests"]), 1):
            yield f"{file.stem} {n}", Sent(path, json.dumps(body, ensure_ascii=False).encode())
