#!/usr/bin/env python3
"""All servers of apps.py, cache.py and files.py in one table, from one commit and one machine.

    bench/apps/all.py --budget 600          ends by itself after ten minutes; `uncopy-bench report` runs it so
    bench/apps/all.py --install             installs the servers (Debian packages) first

What the columns are: harness.py."""

import apps
import cache
import files
import harness

# Those that people ask about first come first: what there is no time for is what comes last.
SERVERS = {**cache.SERVERS, **apps.SERVERS, **files.SERVERS}

if __name__ == "__main__":
    harness.run(SERVERS, __doc__)
