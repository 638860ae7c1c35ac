"""The memory that models may use, also in a container."""

import os
from pathlib import Path

from dragoman.backends.embedded.config import EmbeddedConfig
from dragoman.backends.embedded.gguf import Shape
from dragoman.backends.embedded.local import memory


def test_need_grows_with_context_and_concurrency() -> None:
    shape = Shape("llama", "model", 4096, 0, 1000, has_vocabulary=True, repacked_share=0.5)
    config = EmbeddedConfig(max_concurrency=2)
    assert memory.needed_bytes(10_000_000, shape, config) == 15_000_000 + 4096 * 2 * 1000 + memory.PROCESS_BYTES
    config = EmbeddedConfig(max_concurrency=2, cache_type="q8_0", cache_type_v="f16")
    assert memory.needed_bytes(0, shape, config) == 4096 * 2 * 1000 * (34 / 32 + 2) / 4 + memory.PROCESS_BYTES


def test_budget_is_setting_or_what_is_available() -> None:
    assert memory.budget_bytes(100, ()) == 100_000_000
    available = memory.budget_bytes(0, ())
    assert 0 < available < os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    assert memory.budget_bytes(0, (os.getpid(), 999_999_999)) > available * 0.5


def write_group(folder: Path, limit: str, current: int) -> None:
    folder.mkdir(parents=True)
    (folder / "memory.max").write_text(f"{limit}\n")
    (folder / "memory.current").write_text(f"{current}\n")
    (folder / "memory.stat").write_text("anon 5\ninactive_file 7\nactive_file 3\n")


def test_limits_of_all_enclosing_control_groups_count(tmp_path: Path) -> None:
    root = tmp_path / "cgroup"
    write_group(root, "max", 1)
    write_group(root / "a", "1000", 900)
    write_group(root / "a" / "b", "500", 100)
    assert memory.available_in_cgroups(root, "/a/b") == [410, 110]
    assert memory.available_in_cgroups(root, "/a") == [110]
    assert memory.available_in_cgroups(root, "/absent") == []
    assert memory.available_in_cgroups(tmp_path / "none", "/") == []
