"""Make a training folder of the Rondônia scene of e-sensing/sitsdata (tile 20LLQ): one stack a date, and a mask.

    python examples/stack_rondonia.py SOURCE OUT

The mask is the class with the largest probability in the map that comes with the scene: another model's opinion, not
ground truth.
"""

from __future__ import annotations

import sys
from pathlib import Path

from atomizer_lab.small_data.staging import stack_rondonia

if __name__ == "__main__":
    stack_rondonia(Path(sys.argv[1]), Path(sys.argv[2]))
