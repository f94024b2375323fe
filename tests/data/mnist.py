"""MNIST in small, as the smoke tests of the experiments have it."""

from atomizer_lab.synthetic.mnist_files import write

__all__ = ["write"]
