"""How often small models' calls are right, and what each rung of the guard adds to that.

Judged are the texts of the recording, so that no model is needed; `python -m bench.accuracy` asks the models anew.
"""

from collections.abc import Iterator

from bench.figures import Figure

MODELS = ("smollm2-135m", "qwen2.5-coder-1.5b")


def measure(quick: bool) -> Iterator[Figure]:
    """Answers that are not right, and calls that are invalid; of the first few prompts where it is to be quick."""
    from bench.accuracy import report, texts  # which want the embedded engine

    for model in MODELS:
        for row in report.rows(texts.recorded(model), most=5 if quick else 0):
            about = f"{model}, {row.rung.title}"
            yield Figure(f"{about}: not right", row.count - row.all_right, f"of {row.count} answers")
            yield Figure(f"{about}: invalid", row.invalid, f"of {row.calls} calls")
