"""The choice among the GGUF files of a repository."""

import pytest

from dragoman.backends.embedded.weights.quantization import (
    HubFile,
    HubModel,
    choose_model,
    group_models,
    is_projector,
    quantization_of,
    repacked_share,
)
from dragoman.core.errors import ConfigError

GB = 1_000_000_000
SIZES = {"F16": 8.0, "Q8_0": 4.3, "Q6_K": 3.3, "Q5_K_M": 2.9, "Q4_K_M": 2.5, "Q3_K_M": 2.0, "Q2_K": 1.6}
"""Those of a model of four billion weights, in GB."""


def models(**sizes_gb: float) -> list[HubModel]:
    files = [HubFile(f"m-{label}.gguf", int(size * GB), "") for label, size in sizes_gb.items()]
    return group_models(files)


def chosen(memory_gb: float, label: str = "", **sizes_gb: float) -> str:
    found = choose_model(
        "o/r", models(**(sizes_gb or SIZES)), label, lambda model: model.size_bytes + GB, int(memory_gb * GB)
    )
    return found.quantization


@pytest.mark.parametrize(
    ("path", "label"),
    [
        ("SmolLM2-135M-Instruct.Q4_1.gguf", "Q4_1"),
        ("qwen2.5-coder-1.5b-instruct-q4_k_m.gguf", "Q4_K_M"),
        ("Qwen3-4B-UD-Q4_K_XL.gguf", "UD-Q4_K_XL"),
        ("gemma-3-4b-it-IQ3_XXS.gguf", "IQ3_XXS"),
        ("BF16/Model-BF16-00001-of-00002.gguf", "BF16"),
        ("Q8_0/model-00001-of-00002.gguf", "Q8_0"),
        ("gpt-oss-20b-mxfp4.gguf", "MXFP4"),
        ("model-f16.gguf", "F16"),
        ("ggml-model-fp16.gguf", "FP16"),
        ("m-TQ1_0.gguf", "TQ1_0"),
        ("Qwen3-4B.gguf", ""),
        ("Q-model.gguf", ""),
        ("qwen2.5-3b.gguf", ""),
    ],
)
def test_quantization_is_read_from_name(path: str, label: str) -> None:
    assert quantization_of(path) == label


def test_parts_are_grouped_and_other_files_left_out() -> None:
    names = ["a-Q8_0-00002-of-00002.gguf", "a-Q8_0-00001-of-00002.gguf", "b-Q4_0-00001-of-00003.gguf", "a-Q4_0.gguf"]
    names += ["mmproj-a-F16.gguf", "imatrix.gguf", "README.md"]
    found = group_models([HubFile(name, 1, "") for name in names])
    paths = [(model.quantization, [file.path for file in model.files]) for model in found]
    assert paths == [("Q4_0", ["a-Q4_0.gguf"]), ("Q8_0", sorted(names[:2]))]
    assert is_projector("sub/mmproj-a-F16.gguf")
    assert not is_projector("mmproj/a.gguf")


@pytest.mark.parametrize(
    ("memory_gb", "label"),
    [
        (64, "Q8_0"),
        (10.6, "Q8_0"),
        (9, "Q6_K"),
        (8, "Q5_K_M"),
        (7, "Q4_K_M"),
        (4.4, "Q4_K_M"),
        (4, "Q3_K_M"),
        (3.3, "Q2_K"),
    ],
)
def test_best_quantization_depends_on_memory(memory_gb: float, label: str) -> None:
    assert chosen(memory_gb) == label


def test_model_that_does_not_fit_is_refused_unless_named() -> None:
    with pytest.raises(
        ConfigError, match=r"no model of o/r fits into 3\.00 GB .* 80% of it, .* 2\.60 GB; .*hf:o/r:Q2_K"
    ):
        chosen(3)
    assert chosen(3, "q2_k") == "Q2_K"


def test_repository_without_usual_quantizations() -> None:
    assert chosen(8, F16=3, BF16=3.1) == "F16"
    assert chosen(8, Q4_0=2, Q5_1=3) == "Q5_1"
    assert chosen(2, strange=1.9) == ""


def test_named_quantization() -> None:
    assert chosen(8, "f16") == "F16"
    assert chosen(8, "q6") == "Q6_K"
    with pytest.raises(
        ConfigError, match=r"has no quantization 'Q7_K'.*; it has Q2_K \(1\.60 GB\), Q3_K_M \(2\.00 GB\), "
    ):
        chosen(8, "q7_k")
    with pytest.raises(ConfigError, match=r"several quantizations of o/r match: Q4_0 \(1\.00 GB\), Q4_1 \(2\.00 GB\)"):
        chosen(8, "Q4", Q4_0=1, Q4_1=2, Q8_0=3)


def test_repository_with_several_models_needs_a_file_name() -> None:
    files = [HubFile("small-Q4_0.gguf", 1, ""), HubFile("large-Q4_0.gguf", 2, "")]
    with pytest.raises(
        ConfigError, match=r"several models in this quantization; name the file: hf:o/r/large-Q4_0\.gguf"
    ):
        choose_model("o/r", group_models(files), "", lambda model: model.size_bytes, GB)


def test_repository_without_gguf_files_is_refused() -> None:
    with pytest.raises(ConfigError, match="o/r has no GGUF files"):
        choose_model("o/r", [], "", lambda model: model.size_bytes, GB)


def test_quantizations_that_are_repacked_need_more() -> None:
    assert [repacked_share(label) for label in ("Q4_K_M", "UD-Q4_K_XL", "Q8_0", "Q6_K", "IQ4_NL", "")] == [
        0.75,
        0.75,
        0,
        0,
        0.75,
        0,
    ]
