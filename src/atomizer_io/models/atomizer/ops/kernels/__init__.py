"""Small compiled kernels for the loops that take nearly all the time on a CPU.

The C sources beside this file are compiled once with the machine's own compiler, for its own instruction set, and kept
in a private folder of the user's cache. Without a compiler, on another device or with ``ATOMIZER_KERNELS=off`` the same
functions run in plain torch; :func:`status` reports which of the two is in use, and why.

A compiler that does not know OpenMP makes kernels of one thread. They are used only where torch has one thread as well
(``torch.set_num_threads(1)``, the workers of a data loader): on one thread a prediction or training step with kernels
was measured to be 1.1 to 2.8 times as fast as with torch alone, which the other threads of torch can make up for.

The kernels are ``autograd.Function`` and ctypes calls, not ``torch.library`` operators. Those were tried on
``cells.c``: they pass ``opcheck``, but a forward and backward call for 93 atoms takes 1.0 ms instead of 0.6 ms, and
calls become longer, as operators take no structures and return nothing optional. What they are for is not needed here:
the package does not use ``torch.compile``, and an exported model must run without this package, so without operators.
"""

from atomizer_io.models.atomizer.ops.kernels.build import Status, status

__all__ = ["Status", "status"]
