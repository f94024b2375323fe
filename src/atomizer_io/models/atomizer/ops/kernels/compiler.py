"""The machine's C compiler: which one it is, and how the kernels are compiled with it."""

from __future__ import annotations

import functools
import hashlib
import os
import platform
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import torch

SOURCES = Path(__file__).parent
# Not -ffast-math: the online softmax starts from −∞.
FLAGS = ("-O3", "-march=native", "-fno-math-errno", "-fno-trapping-math", "-ffp-contract=fast", "-fPIC", "-shared")
OPENMP = ("-fopenmp",)
NO_OPENMP = ("-Wno-unknown-pragmas",)  # for compilers that do not know OpenMP: one thread then
PRECISIONS = {torch.float32: ("-DREAL=float",), torch.float64: ("-DREAL=double", "-DIS_DOUBLE")}


class CompilerError(OSError):
    """The compiler failed; ``output`` is all it printed, the message its first line about an error."""

    def __init__(self, what: str, output: str) -> None:
        lines = [line.strip() for line in output.splitlines() if line.strip()]
        telling = [line for line in lines if "error" in line.lower()] or lines[-1:] or ["it printed nothing"]
        super().__init__(f"{what}: {telling[0]}")
        self.output = output


@dataclass(frozen=True, slots=True)
class Compiler:
    """A C compiler: its path, and what it reports of its version."""

    path: str
    version: str

    def __str__(self) -> str:
        return f"{self.path} ({self.version.splitlines()[0]})" if self.version else self.path

    def key(self, source: str, dtype: torch.dtype) -> str:
        """A name for the result of compiling: other sources, flags, compiler or processor, another name."""
        parts = [self.path, os.path.realpath(self.path), self.version, platform.machine(), _processor()]
        parts += [source, *FLAGS, *OPENMP, *PRECISIONS[dtype]]
        code = [path.read_bytes() for path in sorted(SOURCES.glob("*.[ch]"))]
        return hashlib.sha256(b"\0".join([*map(str.encode, parts), *code])).hexdigest()[:16]

    def compile(self, source: str, dtype: torch.dtype, to: Path) -> None:
        """Write the shared library of ``source``.c, with OpenMP where the compiler knows it."""
        rest = [*PRECISIONS[dtype], "-o", str(to), str(SOURCES / f"{source}.c"), "-lm"]
        try:
            self._run(source, *FLAGS, *OPENMP, *rest)
        except CompilerError:
            self._run(source, *FLAGS, *NO_OPENMP, *rest)

    def _run(self, source: str, *options: str) -> None:
        try:
            done = subprocess.run([self.path, *options], capture_output=True, text=True, errors="replace", timeout=120)
        except subprocess.TimeoutExpired as error:
            raise CompilerError(f"{self.path} took more than two minutes for {source}.c", "") from error
        if done.returncode:
            raise CompilerError(f"{self.path} could not compile {source}.c", done.stderr or done.stdout)


@functools.cache
def find_compiler() -> Compiler | None:
    """The compiler that ``CC`` names, else ``cc``, ``gcc`` or ``clang``; None where there is none."""
    path = shutil.which(os.environ.get("CC", "cc")) or shutil.which("gcc") or shutil.which("clang")
    if path is None:
        return None
    try:
        done = subprocess.run([path, "--version"], capture_output=True, text=True, errors="replace", timeout=20)
    except (OSError, subprocess.SubprocessError):
        return Compiler(path, "")  # compiling will report what is wrong with it
    return Compiler(path, "" if done.returncode else done.stdout.strip())


def _processor() -> str:
    """What decides the instruction set: a cache folder may be shared by different machines."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    keys = ("model name", "flags", "Features", "CPU part")
    return "\n".join(next((line for line in lines if line.startswith(name)), "") for name in keys)
