"""The laboratory of Atomizer-IO: baselines, synthetic scenes, the paper's experiments, benchmarks, report and demo."""
