"""What a file that is written takes the place of."""

from __future__ import annotations

import os
from pathlib import Path

from sqlcache.errors import ConfigError


def replaced(path: Path) -> Path:
    """The file that is to be replaced, or made: that which a symbolic link leads to, and the link
    stays. Raises: ConfigError for what is there and no regular file, such as a device."""
    file = Path(os.path.realpath(path))
    if os.path.lexists(file) and not file.is_file():
        raise ConfigError(f"{path}: is no regular file, and stays what it is")
    return file
