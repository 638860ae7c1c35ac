"""Errors of the estimates of `core/token_estimate.py` compared with tokenizers, and their CPU time.

`python -m bench.tokens` prints the error of each tokenizer on each kind of text; docs/tokens.md has the results.
"""

from collections.abc import Iterator, Mapping
from functools import partial
from typing import NamedTuple

from bench.corpora import ENGLISH_AND_CODE, KB, corpora
from bench.figures import Figure
from bench.timing import compare
from bench.vocabularies import counters
from dragoman.catalog import tokenizers
from dragoman.core.token_estimate import GENERIC, TokenEstimator

GOAL_PERCENT = 10.0
"""On English, code and JSON."""
GOAL_US = 10.0
"""A kilobyte."""


class Errors(NamedTuple):
    """Errors for one tokenizer, in percent of its count; positive if the estimate is too high."""

    kinds: Mapping[str, float]
    """Error of all texts of a kind."""
    ninth: float
    """Error that nine tenths of the pieces of English, code and JSON (a few kilobytes) do not exceed."""


def errors(texts: Mapping[str, list[str]], name: str, vocabulary: TokenEstimator) -> Errors:
    """Returns the errors of the estimate for `vocabulary` compared with the tokenizer of this name."""
    count = counters()[name]
    kinds: dict[str, float] = {}
    single: list[float] = []
    for kind, pieces in texts.items():
        counted = [count(piece) for piece in pieces]
        estimated = [vocabulary.estimate(piece) for piece in pieces]
        kinds[kind] = 100 * (sum(estimated) / sum(counted) - 1)
        if kind in ENGLISH_AND_CODE:
            single += [100 * abs(e / c - 1) for e, c in zip(estimated, counted, strict=True)]
    return Errors(kinds, sorted(single)[len(single) * 9 // 10])


def measure(quick: bool) -> Iterator[Figure]:
    """Yields the worst kind of English, code and JSON for each installed tokenizer, and the time per kilobyte."""
    texts = corpora("measured")
    if quick:
        texts = {kind: pieces[:2] for kind, pieces in texts.items()}
    rounds = 2 if quick else 9
    for kind in ("prose", "Python", "JSON", "Chinese"):
        if text := "".join(texts.get(kind, ()))[: 64 * KB]:
            data = text.encode()
            timing = compare(partial(GENERIC.estimate, text), partial(data.count, b" a"), rounds)
            value, best = (x / 1000 * KB / len(data) for x in (timing.median, timing.best))
            yield Figure(f"estimate, {kind}", value, "µs/KB", best, timing.ratio, "bytes.count", GOAL_US)
    for name, vocabulary in tokenizers.estimators().items():
        if name in counters():
            found = errors(texts, name, vocabulary)
            worst = max((k for k in found.kinds if k in ENGLISH_AND_CODE), key=lambda k: abs(found.kinds[k]))
            yield Figure(f"{name}: error on {worst}, its worst", abs(found.kinds[worst]), "%", goal=GOAL_PERCENT)


def main() -> None:
    """Prints the table."""
    texts = corpora("measured")
    rows = []
    for name, vocabulary in tokenizers.estimators().items():
        if name in counters():
            rows.append((name, errors(texts, name, vocabulary)))
            rows.append((f"{name}, by the generic weights", errors(texts, name, GENERIC)))
    print("| tokenizer | " + " | ".join(texts) + " | 9 of 10 pieces |")
    print("|---|" + "---|" * (len(texts) + 1))
    for name, found in rows:
        cells = [f"{x:+.0f}" for x in found.kinds.values()]
        print(f"| {name} | {' | '.join(cells)} | {found.ninth:.0f} |")


if __name__ == "__main__":
    main()
