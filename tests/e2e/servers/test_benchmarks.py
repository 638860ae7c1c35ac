"""Benchmarks that need third-party programs, run with tiny sizes; tests/meta/test_bench.py runs the others."""

import importlib
from pathlib import Path

import pytest
from bench.__main__ import ALONE

from support import bench_figures


@pytest.mark.every
@pytest.mark.parametrize("name", ALONE)
def test_benchmark_with_third_party_program_gives_plausible_figures(name: str) -> None:
    if name == "proxies" and not Path("/proc/self/schedstat").exists():
        pytest.skip("the CPU time and memory of other processes are read from Linux's /proc")
    bench_figures.check(name, importlib.import_module(f"bench.{name}").measure(quick=True))
