"""Figures of samples, predictions and maps; they need matplotlib (the extra ``train``)."""
