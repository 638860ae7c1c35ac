"""Lines of llama.cpp's log: those of real loads, and those for other hardware as its source formats them."""

from dragoman.backends.embedded.engine.load_log import Device, EngineLog

VULKAN = """\
0.00.095.033 I cmn  common_param: system_info: n_threads = 2 (n_threads_batch = 3) / 2 | CPU : SSE3 = 1 | AVX2 = 1 |
0.00.281.473 I common_memory_breakdown_print: |   - Vulkan0 (llvmpipe (LLVM 15.0.6, 256 bits)) |  2048 = 2048 + (96) |
0.00.341.662 I llama_prepare_model_devices: using device Vulkan0 (llvmpipe (LLVM 15.0.6, 256 bits)) (unknown id) - \
2048 MiB free
0.00.437.607 I load_tensors: offloading output layer to GPU
0.00.437.632 I load_tensors: offloading 19 repeating layers to GPU
0.00.437.638 I load_tensors: offloaded 20/31 layers to GPU
0.00.437.651 I load_tensors:   CPU_Mapped model buffer size =    92.10 MiB
0.00.437.657 I load_tensors:      Vulkan0 model buffer size =    68.85 MiB
0.00.565.138 I llama_context: n_batch               = 1024
0.00.565.145 I llama_context: n_ubatch              = 512
0.00.565.157 I llama_context: flash_attn            = auto
0.00.565.309 I llama_context: Vulkan_Host  output buffer size =     0.19 MiB
0.00.565.430 I llama_kv_cache:        CPU KV buffer size =     8.25 MiB
0.00.580.246 I llama_kv_cache:    Vulkan0 KV buffer size =    14.25 MiB
0.00.613.486 I llama_kv_cache: size =   22.50 MiB (  1024 cells,  30 layers,  1/1 seqs), K (f16):   11.25 MiB, \
V (q8_0):   11.25 MiB
0.00.615.065 I resolve_fused_ops: Flash Attention enabled
0.00.621.097 I sched_reserve:    Vulkan0 compute buffer size =    13.10 MiB
0.00.621.122 I sched_reserve: Vulkan_Host compute buffer size =     3.26 MiB
0.02.078.532 I srv  llama_server: listening on unix:///tmp/engine.sock
"""


def read(text: str) -> EngineLog:
    log = EngineLog()
    for line in text.splitlines():
        log.feed(line + "\n")
    return log


def test_facts_of_a_load_on_vulkan() -> None:
    facts = read(VULKAN).facts
    assert facts.devices == [Device("Vulkan0", "llvmpipe (LLVM 15.0.6, 256 bits)")]
    assert (facts.gpu_layers, facts.layers) == (20, 31)
    assert (facts.threads, facts.reading_threads) == (2, 3)
    assert facts.batch_tokens == 512
    assert facts.flash_attention == "enabled"
    assert facts.cache_types == ("f16", "q8_0")
    assert facts.gpu_mib == 68.85 + 14.25 + 13.10
    assert facts.built_with == ("CPU",)
    assert facts.is_complete


def test_devices_of_other_hardware() -> None:
    log = read(
        "x: using device CUDA0 (NVIDIA GeForce RTX 3090) (0000:01:00.0) - 23306 MiB free\n"
        "x: using device CUDA1 (NVIDIA GeForce RTX 3090) (0000:02:00.0) - 23306 MiB free\n"
        "x: using device MTL0 (Apple M2 Pro) (unknown id) - 21845 MiB free\n"
        "x: using device CUDA0 (NVIDIA GeForce RTX 3090) - 23306 MiB free\n"
    )
    assert log.facts.devices == [
        Device("CUDA1", "NVIDIA GeForce RTX 3090"),
        Device("MTL0", "Apple M2 Pro"),
        Device("CUDA0", "NVIDIA GeForce RTX 3090"),
    ]


def test_flash_attention_that_the_hardware_lacks() -> None:
    log = read("flash_attn            = auto\nFlash Attention not supported, set to disabled\n")
    assert log.facts.flash_attention == "disabled"


def test_requests_do_not_change_facts() -> None:
    log = read(VULKAN + "x: offloaded 1/2 layers to GPU\n")
    assert log.facts.gpu_layers == 20


def test_only_lines_that_may_explain_an_exit_are_kept() -> None:
    error = "0.00.297.170 E llama_init_from_model: quantized V cache requires flash_attn to be enabled"
    rest = "0.01.1.2 W srv: a warning\n\trepeat_last_n = 64\nGGML_ASSERT(x) failed\n\n"
    assert list(read(f"0.00.1.2 I init: loading\n{error}\n{rest}").last) == [error, "GGML_ASSERT(x) failed"]


def test_lines_of_a_load_do_not_explain_a_later_exit() -> None:
    """The example of the chat template, of several lines, is among them."""
    assert not read(f"<|im_start|>user\nHello<|im_end|>\n{VULKAN}").last
