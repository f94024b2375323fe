"""Samples and predictions as pictures; needs matplotlib (the extra ``train``)."""
