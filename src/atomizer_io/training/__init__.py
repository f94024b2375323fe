"""Training and evaluation as in the paper, on one CPU or many GPUs."""
