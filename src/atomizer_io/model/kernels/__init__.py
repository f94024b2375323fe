"""Small compiled kernels for the loops that take nearly all the time on a CPU.

The C sources beside this file are compiled once with the machine's own compiler, for its own instruction set, and kept
in a private folder of the user's cache. Without a compiler, on another device or with ``ATOMIZER_KERNELS=off`` the same
functions run as ordinary torch operations; :func:`status` tells which of the two is in use, and why.

A compiler that does not know OpenMP makes kernels of one thread. They are used only where torch has one thread as well
(``torch.set_num_threads(1)``, the workers of a data loader): a whole prediction or training step with kernels is 1.1 to
2.8 times as fast as torch alone on one thread, which torch makes up for with two or three.

The kernels are ``autograd.Function`` and ctypes calls, not ``torch.library`` operators. Those were tried on
``cells.c``; they pass ``opcheck``, but a forward and backward call of 93 atoms takes 1.0 ms instead of 0.6 ms, most of
it in the dispatch of twenty arguments; call sites become longer (no structures, no optional results); and neither
``torch.compile`` nor export would use them, as an exported model must run without this package.
"""

from atomizer_io.model.kernels.build import Status, status

__all__ = ["Status", "status"]
