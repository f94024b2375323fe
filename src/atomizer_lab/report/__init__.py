"""One page about everything in ``results/``: tables beside the paper's, curves, confusion matrices and pictures."""
