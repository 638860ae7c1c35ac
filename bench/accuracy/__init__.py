"""How often small models' calls are right, and how much each rung of the guard improves that.

The recorded texts are judged, so models are not needed; `python -m bench.accuracy` asks the models again.
"""

from collections.abc import Iterator

from bench.figures import Figure

MODELS = ("smollm2-135m", "qwen2.5-coder-1.5b")


def measure(quick: bool) -> Iterator[Figure]:
    """Yields wrong answers and invalid calls; `quick`: of the first prompts only."""
    from bench.accuracy import report, texts  # they need the embedded engine

    for model in MODELS:
        for row in report.rows(texts.read_recording(texts.recording(model)), limit=5 if quick else 0):
            about = f"{model}, {row.rung.title}"
            yield Figure(f"{about}: not right", row.count - row.all_right, f"of {row.count} answers")
            yield Figure(f"{about}: invalid", row.invalid, f"of {row.calls} calls")
