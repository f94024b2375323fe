"""Small compiled kernels for the loops that take nearly all the time on a CPU.

The C sources beside this file are compiled once with the machine's own compiler, for its own instruction set, and kept
in the user's cache folder. Without a compiler, on another device or with ``ATOMIZER_KERNELS=off`` the same functions
run as ordinary torch operations.
"""
