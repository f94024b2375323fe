"""What a power cut would leave: which names point to contents that were on the disk, and are there themselves."""

from __future__ import annotations

import os
from pathlib import Path

import pytest


class Disk:
    """Watches this process sync and rename files; a name is safe when its content, and then its folder, were synced."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.synced: set[int] = set()  # inodes of files
        self.named: dict[Path, bool] = {}  # whether a name has come to stay, by its path
        self.syncs = 0
        sync, replace, unlink = os.fsync, os.replace, os.unlink

        def syncing(number: int) -> None:
            sync(number)
            self.syncs += 1
            self.synced.add(os.fstat(number).st_ino)
            here = Path(f"/proc/self/fd/{number}").resolve()
            self.named.update(dict.fromkeys([path for path in self.named if path.parent == here], True))

        def replacing(source: str | Path, target: str | Path) -> None:
            assert os.stat(source).st_ino in self.synced or ".parts" in str(target), f"{target} may be empty"
            replace(source, target)
            self.named[Path(target).resolve()] = False

        def unlinking(path: str | Path, **more: int) -> None:
            assert not self.unsafe(), f"{path} is removed before {self.unsafe()} are safe"
            unlink(path, **more)

        patch.setattr(os, "fsync", syncing)
        patch.setattr(os, "replace", replacing)
        patch.setattr(os, "rename", replacing)
        patch.setattr(os, "unlink", unlinking)

    def unsafe(self) -> list[str]:
        """The names outside of unfinished work that a power cut may take back."""
        return [path.name for path, safe in self.named.items() if not safe and ".parts" not in str(path)]
