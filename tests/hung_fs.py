"""A file system that hangs: it is mounted, and never answers.

    python3 tests/hung_fs.py FOLDER      mounts it there, prints `ready`, goes when stdin is closed

It speaks the kernel's FUSE protocol itself as far as the greeting, so no library is needed; it needs root and
/dev/fuse, and exits with a sentence where they cannot be had.
"""
from __future__ import annotations

import ctypes
import os
import struct
import sys

FUSE_INIT = 26
NOSUID, NODEV, DETACH = 2, 4, 2


def main(folder: str) -> str:
    libc = ctypes.CDLL(None, use_errno=True)
    try:
        fd = os.open("/dev/fuse", os.O_RDWR)
    except OSError as error:
        return "no FUSE here: %s" % error
    options = "fd=%d,rootmode=40000,user_id=0,group_id=0,allow_other" % fd
    if libc.mount(b"hung", os.fsencode(folder), b"fuse.hung", NOSUID | NODEV, options.encode()):
        return "cannot mount: %s" % os.strerror(ctypes.get_errno())
    try:
        _, opcode, unique = struct.unpack_from("<IIQ", os.read(fd, 1 << 20))
        if opcode != FUSE_INIT:
            return "the kernel does not greet"
        body = struct.pack("<IIIIHHIIHHI7I", 7, 31, 1 << 16, 0, 12, 9, 1 << 16, 1, 1, 0, 0, *[0] * 7)
        os.write(fd, struct.pack("<IiQ", 16 + len(body), 0, unique) + body)
        print("ready", flush=True)
        sys.stdin.read()
    finally:
        libc.umount2(os.fsencode(folder), DETACH)
    return ""


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
