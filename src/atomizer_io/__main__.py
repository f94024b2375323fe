"""``python -m atomizer_io`` is the command ``atomizer``."""

import sys

from atomizer_io.cli import main

if __name__ == "__main__":
    sys.exit(main())
