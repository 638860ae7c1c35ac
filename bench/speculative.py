"""Measures speculative decoding by prompt lookup: are tool calls written faster if tokens are guessed from the prompt?

    python -m bench.speculative [MODEL ...]     by default, all models that are pulled

Each kind of guessing writes the same three calls at temperature 0: a short one, one that copies a file from the prompt,
and one that writes it with a change. Printed are output tokens per second of CPU time of the engine's process, as
machines are shared, and the ratio to no guessing.
"""

import subprocess
import sys
import time
from typing import Any, Final

from dragoman.backends.embedded import weights
from dragoman.catalog import models as catalog

KINDS: Final = ("none", "ngram_simple", "ngram_mod", "ngram_map_k")
_FILE: Final = "".join(
    f"def area_{n}(width: float, height: float) -> float:\n    return width * height * {n}\n\n" for n in range(6)
)
_HEAD: Final = (
    '<|im_start|>system\nYou write calls as <tool_call>{"name": …, "arguments": {…}}</tool_call>. '
    "Tools: write_file(path, text), get_weather(city).<|im_end|>\n<|im_start|>user\n"
)
_TAIL: Final = '<|im_end|>\n<|im_start|>assistant\n<tool_call>\n{"name": "'
PROMPTS: Final = {
    "short": f"{_HEAD}What is the weather in Paris?{_TAIL}get_weather",
    "copy": f"{_HEAD}Copy this file to b.py:\n{_FILE}{_TAIL}write_file",
    "change": f"{_HEAD}Rename area to surface in this file and write it to b.py:\n{_FILE}{_TAIL}write_file",
}
TOKENS: Final = 160


def measure(name: str, kind: str) -> None:
    """Prints one row for one model and one kind of guessing; runs in a process of its own."""
    import xllamacpp

    params = xllamacpp.CommonParams()
    params.model.path = str(weights.find_weights(name))
    params.n_ctx, params.n_parallel, params.warmup = 4096, 1, False
    params.verbosity, params.ui = 0, False
    params.speculative.types = [xllamacpp.common_speculative_type[f"COMMON_SPECULATIVE_TYPE_{kind.upper()}"]]
    server = xllamacpp.Server(params)
    cells = []
    for prompt in PROMPTS.values():
        chunks: list[tuple[float, dict[str, Any]]] = []

        def take(chunk: Any, chunks: list[tuple[float, dict[str, Any]]] = chunks) -> bool:
            chunks.extend((time.process_time(), each) for each in (chunk if isinstance(chunk, list) else [chunk]))
            return False

        server.handle_completions({"prompt": prompt, "n_predict": TOKENS, "temperature": 0, "stream": True}, take)
        last = chunks[-1][1]
        cells.append(f"{(last['usage']['completion_tokens'] - 1) / (chunks[-1][0] - chunks[0][0]):8.2f}")
    print(f"{name:22} {kind:14} {' '.join(cells)}", flush=True)


def main(names: list[str]) -> None:
    """Measures each model with each kind of guessing."""
    print(
        f"{'model':22} {'guessing':14} {' '.join(f'{each:>8}' for each in PROMPTS)}   tokens per CPU second", flush=True
    )
    for name in names or [profile.name for profile in catalog.models() if weights.is_downloaded(profile)]:
        for kind in KINDS:
            subprocess.run([sys.executable, "-m", "bench.speculative", "--one", name, kind], check=False)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--one"]:
        measure(*sys.argv[2:4])
    else:
        main(sys.argv[1:])
