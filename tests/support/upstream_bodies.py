"""Bodies that upstream servers send."""

import json

from support.dialect_cases import Case


def body(case: Case) -> bytes:
    if case.kind == "answer, bytes":
        return case.text.encode()
    return "".join(map(frame, case.text.splitlines())).encode()


def frame(line: str) -> str:
    kind, _, rest = line.partition(" ")
    match kind:
        case "delta":
            return f'data: {{"id":"x","choices":[{{"index":0,"delta":{rest},"finish_reason":null}}]}}\n\n'
        case "finish":
            return f'data: {{"id":"x","choices":[{{"index":0,"delta":{{}},"finish_reason":{rest}}}]}}\n\n'
        case "data:" if rest.startswith('{"type"'):
            return f"event: {json.loads(rest)['type']}\n{line}\n\n"
    return line + "\n\n"
