"""Models to compare Atomizer-IO with, one file each; all follow ``models/base.py``."""
