"""The plugin's icon, .claude-plugin/icon.png: a hook that holds a thread. `make pictures` draws it.

Every shape is a distance: how far a point is from its line. So the edges are smooth without any library.
"""

from __future__ import annotations

import math
import struct
import sys
import zlib
from pathlib import Path

TARGET = Path(__file__).resolve().parent.parent / ".claude-plugin" / "icon.png"
SIZE = 1024
CARD, HOOK, THREAD = (30, 33, 39), (229, 192, 123), (97, 175, 239)
CORNER, MARGIN = 180, 24


def to_segment(x: float, y: float, ends: tuple) -> float:
    """The distance to a straight line between two points."""
    left, top, right, bottom = ends
    along_x, along_y = right - left, bottom - top
    share = ((x - left) * along_x + (y - top) * along_y) / (along_x**2 + along_y**2)
    share = min(1.0, max(0.0, share))
    return math.hypot(x - left - share * along_x, y - top - share * along_y)


def to_half_circle(x: float, y: float, centre: tuple, radius: float) -> float:
    """The distance to the lower half of a circle."""
    middle, height = centre
    if y >= height:
        return abs(math.hypot(x - middle, y - height) - radius)
    return min(math.hypot(x - middle - radius, y - height), math.hypot(x - middle + radius, y - height))


def to_card(x: float, y: float) -> float:
    """The distance to a square with round corners; negative inside."""
    half = SIZE / 2 - MARGIN - CORNER
    beside, above = abs(x - SIZE / 2) - half, abs(y - SIZE / 2) - half
    return math.hypot(max(beside, 0), max(above, 0)) - CORNER


def to_hook(x: float, y: float) -> float:
    """A shaft with an eye at its top, a bend, and a tip."""
    eye = abs(math.hypot(x - 600, y - 250) - 72) + 6
    shaft = to_segment(x, y, (600, 330, 600, 640))
    bend = to_half_circle(x, y, (450, 640), 150)
    tip = to_segment(x, y, (300, 640, 300, 560))
    return min(eye, shaft, bend, tip) - 34


def to_thread(x: float, y: float) -> float:
    """A line that comes from the left, through the eye, and goes on to the right."""
    wave = 250 + 60 * math.sin((x - 600) / 150)
    slope = 60 / 150 * math.cos((x - 600) / 150)
    is_beside = abs(x - SIZE / 2) > 400
    return 99.0 if is_beside else abs(y - wave) / math.hypot(1, slope) - 13


def coverage(distance: float) -> float:
    return min(1.0, max(0.0, 0.5 - distance))


def pixel(x: float, y: float) -> bytes:
    colour = CARD
    for shape, paint in ((to_thread, THREAD), (to_hook, HOOK)):
        share = coverage(shape(x, y))
        if share:
            colour = tuple(round(old + (new - old) * share) for old, new in zip(colour, paint))
    return bytes((*colour, round(255 * coverage(to_card(x, y)))))


def chunk(name: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))


def png() -> bytes:
    rows = b"".join(b"\0" + b"".join(pixel(x + 0.5, y + 0.5) for x in range(SIZE)) for y in range(SIZE))
    head = struct.pack(">IIBBBBB", SIZE, SIZE, 8, 6, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(rows, 9)) + chunk(b"IEND", b"")


if __name__ == "__main__":
    TARGET.write_bytes(png())
    print("icon.png: %d bytes" % TARGET.stat().st_size, file=sys.stderr)
