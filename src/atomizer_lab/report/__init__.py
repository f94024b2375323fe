"""One page about everything in ``results/``: tables beside the paper's, charts, confusion matrices and figures."""
