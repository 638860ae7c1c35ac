"""How often small models' calls are right, and how much each rung of the guard improves that.

`ladder` has the rungs of single answers, `fresh` sixty prompts through a gateway, `multi_turn` tasks of several turns.

The recorded texts are judged, so models are not needed; `python -m bench.accuracy` asks the models again.
"""

from collections.abc import Iterator

from bench.figures import Figure

MODELS = ("smollm2-135m", "qwen2.5-coder-1.5b")


def measure(quick: bool) -> Iterator[Figure]:
    """Yields wrong answers and invalid calls; `quick`: of the first prompts only."""
    from bench.accuracy import fresh, report, texts  # they need the embedded engine
    from bench.accuracy.multi_turn import recording

    for model in MODELS:
        for row in report.rows(texts.read_recording(texts.recording(model)), limit=5 if quick else 0):
            about = f"{model}, {row.rung.title}"
            yield Figure(f"{about}: not right", row.count - row.all_right, f"of {row.count} answers")
            yield Figure(f"{about}: invalid", row.invalid, f"of {row.calls} calls")
    for group in fresh.groups(fresh.read(fresh.RECORDING)[: 5 if quick else None]):
        about = f"fresh prompts, {group.title}"
        yield Figure(f"{about}: not right", group.answers - group.right, f"of {group.answers} answers")
    for run in recording.read(recording.RECORDING):
        yield Figure(f"{run.id}, {run.arm}, seed {run.seed}: rejected", int(bool(run.problem)), "of 1 task")
