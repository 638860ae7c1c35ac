"""The line that states what a model runs on, and the GPU that a machine has."""

from pathlib import Path
from typing import Any

import pytest

from dragoman.backends.embedded.engine import hardware
from dragoman.backends.embedded.engine.hardware import Gpu
from dragoman.backends.embedded.engine.load_log import Device, LoadFacts

INDEX = "https://xorbitsai.github.io/xllamacpp/whl"
NVIDIA = Gpu("NVIDIA", "CUDA", "cu128")
RTX = Device("CUDA0", "NVIDIA GeForce RTX 3090")


def facts(**known: Any) -> LoadFacts:
    return LoadFacts(**{"threads": 4, "reading_threads": 4, "layers": 29, "gpu_layers": 29, **known})


@pytest.mark.parametrize(
    ("known", "gpu", "options", "line"),
    [
        ({"devices": [Device("MTL0", "Apple M2 Pro")]}, None, {}, "Metal (Apple M2 Pro), 29 of 29 layers on the GPU"),
        (
            {"devices": [RTX], "gpu_layers": 20},
            NVIDIA,
            {},
            "CUDA (NVIDIA GeForce RTX 3090), 20 of 29 layers on the GPU",
        ),
        (
            {"devices": [RTX, RTX._replace(id="CUDA1")]},
            NVIDIA,
            {},
            "CUDA (NVIDIA GeForce RTX 3090, NVIDIA GeForce RTX 3090), 29 of 29 layers on 2 GPUs",
        ),
        ({}, None, {}, "CPU only, 4 threads"),
        ({"threads": 1, "reading_threads": 2}, None, {}, "CPU only, 1 thread, 2 while a prompt is read"),
        (
            {},
            NVIDIA,
            {},
            "CPU only, 4 threads (this build has no CUDA; an NVIDIA GPU is here: pip install --force-reinstall "
            f"--no-deps xllamacpp --index-url {INDEX}/cu128)",
        ),
        (
            {},
            NVIDIA,
            {"program": "/usr/bin/llama-server"},
            "CPU only, 4 threads (this build has no CUDA; an NVIDIA GPU is here; set embedded.llama_server to a build "
            "with CUDA)",
        ),
        (
            {"built_with": ("CUDA", "CPU")},
            NVIDIA,
            {},
            "CPU only, 4 threads (an NVIDIA GPU is here, but this build with CUDA found none: its driver is missing or "
            "too old)",
        ),
        (
            {"devices": [RTX], "gpu_layers": 0},
            NVIDIA,
            {"gpu_layers": "0"},
            "CPU only, 4 threads (CUDA (NVIDIA GeForce RTX 3090) is not used: embedded.gpu_layers = 0)",
        ),
        (
            {"devices": [RTX], "gpu_layers": 0},
            NVIDIA,
            {},
            "CPU only, 4 threads (CUDA (NVIDIA GeForce RTX 3090) has no memory for a layer)",
        ),
    ],
)
def test_hardware_line(known: Any, gpu: Gpu | None, options: Any, line: str) -> None:
    assert str(hardware.describe(facts(**known), gpu, **options)) == line


@pytest.mark.parametrize(
    ("files", "gpu"),
    [
        ({}, None),
        ({"proc/driver/nvidia/version": "NVRM version: NVIDIA UNIX x86_64 Kernel Module  570.86"}, NVIDIA),
        ({"dev/kfd": ""}, Gpu("AMD", "ROCm", "rocm-7.2.4")),
        ({"dev/kfd": "", "opt/rocm/.info/version": "6.4.1-83\n"}, Gpu("AMD", "ROCm", "rocm-6.4.1")),
        ({"sys/class/drm/renderD128/device/vendor": "0x8086\n"}, Gpu("Intel", "Vulkan", "vulkan")),
        ({"sys/class/drm/renderD128/device/vendor": "0x1af4\n"}, None),
    ],
)
def test_gpu_of_a_linux_machine(files: dict[str, str], gpu: Gpu | None, tmp_path: Path) -> None:
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    assert hardware.find_gpu(tmp_path, "linux") == gpu


def test_gpu_of_a_mac(tmp_path: Path) -> None:
    apple = hardware.find_gpu(tmp_path, "darwin", "arm64")
    assert apple == Gpu("Apple", "Metal", "")
    assert apple.command == "pip install --force-reinstall --no-deps xllamacpp"
    assert hardware.find_gpu(tmp_path, "darwin", "x86_64") is None
