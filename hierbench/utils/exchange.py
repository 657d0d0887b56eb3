"""Two folders change places in one step, where the system and the file system can do that."""

import ctypes
import errno
import os
import sys
from pathlib import Path

HERE = -100  # AT_FDCWD: relative paths are relative to the working folder
SWAP = 2  # RENAME_EXCHANGE of Linux, and RENAME_SWAP of macOS
CANNOT = (errno.ENOSYS, errno.EINVAL, errno.ENOTSUP, errno.EOPNOTSUPP)


def exchange(one: Path, other: Path) -> bool:
    """Let two existing paths of one file system change places.

    Returns:
        False where this system or file system cannot, as on NFS; then nothing has changed.

    Raises:
        OSError: a path is missing, is a mount point, or may not be renamed.
    """
    library = ctypes.CDLL(None, use_errno=True)
    paths = os.fsencode(one), os.fsencode(other)
    if sys.platform == "darwin" and hasattr(library, "renamex_np"):
        failed = library.renamex_np(*paths, SWAP)
    elif hasattr(library, "renameat2"):
        failed = library.renameat2(HERE, paths[0], HERE, paths[1], SWAP)
    else:
        return False
    number = ctypes.get_errno()
    if failed and number not in CANNOT:
        raise OSError(number, os.strerror(number), str(one))
    return not failed
