"""Fits the weights of `core/token_estimate.py` to what tokenizers count, and prints rows of `catalog/tokenizers.toml`.

Least squares of the relative error over the pieces of text that `bench tokens` does not measure. All kinds of text have
the same weight (other languages half of it), and no weight is negative. The weight of a letter is positive in any case,
as some texts are one long word.
"""

from collections.abc import Sequence
from math import sqrt

from bench.corpora import ENGLISH_AND_CODE, corpora
from bench.vocabularies import counters
from dragoman.core.token_estimate import SHAPES, char_kinds

GENERIC = ("o200k", "llama3", "qwen3", "deepseek", "gemma", "tekken")
"""Tokenizers that an unknown model most likely resembles."""
ROUNDS = 3000
MIN_WEIGHTS = {"a": 0.05}


def main() -> None:
    """Prints a row for each tokenizer, and one for all of `GENERIC`."""
    texts = corpora("fitted")
    texts["typography"] = [_typeset(text) for text in texts["prose"]]
    texts["emoji"] = [_with_emoji(text) for text in texts["prose"][:3]]
    rows = [
        (kind, [float(char_kinds(t).count(s.encode())) for s in SHAPES], t) for kind, ts in texts.items() for t in ts
    ]
    share = {kind: sqrt((1 if kind in ENGLISH_AND_CODE else 0.25) / len(ts)) for kind, ts in texts.items()}
    known = counters()
    counted = {name: [float(count(text)) for _, _, text in rows] for name, count in known.items()}
    samples = {
        name: [(features, number, share[kind]) for (kind, features, _), number in zip(rows, counted[name], strict=True)]
        for name in known
    }
    for name in known:
        print(_row(name, _least_squares(samples[name])))
    print(_row("GENERIC", _least_squares([sample for name in GENERIC if name in known for sample in samples[name]])))


def _typeset(text: str) -> str:
    return text.replace("'", "’").replace(' "', " “").replace('"', "”").replace(" - ", " — ").replace("...", "…")


def _with_emoji(text: str) -> str:
    return "".join(f"{chr(code)} {text[code % 100 :][:6]} " for code in range(0x1F300, 0x1F650))


def _row(name: str, weights: Sequence[float]) -> str:
    weights_text = ", ".join(f'"{s}" = {w:.3f}' for s, w in zip(SHAPES, weights, strict=True))
    return f'name = "{name}"\nweights = {{ {weights_text} }}\n'


def _least_squares(rows: list[tuple[list[float], float, float]]) -> list[float]:
    """Returns the weights whose sums are nearest to the counts: coordinate descent on the normal equations."""
    scaled = [([share * x / count for x in features], share) for features, count, share in rows]
    size = len(SHAPES)
    gram = [[sum(f[i] * f[j] for f, _ in scaled) for j in range(size)] for i in range(size)]
    targets = [sum(f[i] * share for f, share in scaled) for i in range(size)]
    weights = [0.0] * size
    for _ in range(ROUNDS):
        for i in range(size):
            if gram[i][i]:
                rest = targets[i] - sum(gram[i][j] * weights[j] for j in range(size) if j != i)
                weights[i] = max(MIN_WEIGHTS.get(SHAPES[i], 0.0), rest / gram[i][i])
    return weights


if __name__ == "__main__":
    main()
