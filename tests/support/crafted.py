"""Files that no library writes: PNGs of any header, and pickles that run code."""

import os
import struct
import zlib


def chunk(kind, content):
    """Return a chunk of a PNG."""
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))


def png(width, height, pixels, bits=8, more=b""):
    """Return a colour PNG that says it is so large, with these bytes of rows, and other chunks before them."""
    header = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, bits, 2, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + header + more + chunk(b"IDAT", zlib.compress(pixels)) + chunk(b"IEND", b"")


class Marker:
    """A pickle that makes a folder."""

    def __init__(self, place="harm"):
        self.place = place

    def __reduce__(self):
        return os.mkdir, (self.place,)
