"""The demo and the benchmarks."""
