"""Memory for benchmarks in a virtual machine.

The host of a virtual machine may take free memory back (free page reporting, a balloon), in blocks of 2 MB, a second or two after
it became free; touching it again then costs several times as much (here 3.5 ms for 1 MB instead of 0.35), whoever
does it. What is held here touches memory and frees all but one page of every 32: the rest is free, but no block of it is.
"""

import mmap

PAGE = 4096
KEPT_OF = 32


def hold(size):
    """Touches `size` bytes; what it returns keeps the host from taking them until it is closed."""
    size -= size % (KEPT_OF * PAGE)
    held = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    held.madvise(mmap.MADV_NOHUGEPAGE)
    block = b"\xa5" * (1 << 20)
    for at in range(0, size, len(block)):
        held[at : at + min(len(block), size - at)] = block[: size - at]
    for at in range(0, size, KEPT_OF * PAGE):
        held.madvise(mmap.MADV_DONTNEED, at + PAGE, (KEPT_OF - 1) * PAGE)
    return held
