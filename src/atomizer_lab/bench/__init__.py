"""Benchmarks that anyone can run: ``atomizer bench``. Ratios within one run mean more than seconds."""
