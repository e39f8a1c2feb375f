"""Runs modules of CPython's own tests with Debian's interpreter under RUN; prints how many ran and which failed.

What fails plainly must fail in all ways, and nothing else.
"""

import os
import shlex
import subprocess
import sys
import xml.etree.ElementTree

PYTHON = "/usr/bin/python3.11"
# Fails under uncopy: it lists a child's descriptors and finds our three (docs/limitations.md).
DIFFERENT = {"test.test_subprocess.POSIXProcessTestCase.test_pass_fds_redirected"}


# Hangs plainly where the kernel has AF_VSOCK and nothing is behind it (a virtual machine's host).
LEFT_OUT = ["*VSOCK*"]


def main(modules):
    run = os.environ.get("RUN", "").split()
    # The first process tells its counts; those that the tests start must not write to the standard error that they look at.
    start = "import os, runpy, sys; os.environ.pop('UNCOPY_VERBOSE', None); sys.argv[0] = 'test'; runpy.run_module('test', run_name='__main__')"
    failed, ran, bad = set(), 0, []
    for module in modules:
        command = [*run, PYTHON, "-X", "faulthandler", "-c", start, "-u", "cpu", "--timeout", "300", "--junit-xml", f"{module}.xml"]
        for name in LEFT_OUT:
            command += ["-i", name]
        with open(f"{module}.out", "w") as out, open(f"{module}.err", "w") as err:
            done = subprocess.run([*command, module], stdin=subprocess.DEVNULL, stdout=out, stderr=err)
        try:
            tree = xml.etree.ElementTree.parse(f"{module}.xml")
        except (OSError, xml.etree.ElementTree.ParseError):
            bad.append(f"{module}: ended with {done.returncode} and no report; see {module}.out, {module}.err")
            continue
        cases = list(tree.iter("testcase"))
        count = len(cases)
        ran += count
        wrong = {case.get("name") for case in cases if case.find("failure") is not None or case.find("error") is not None}
        failed |= wrong
        if not count:
            bad.append(f"{module}: no test ran")
    if bad:
        sys.exit("\n".join(bad))
    print(f"{ran} tests")
    for name in sorted(failed - (DIFFERENT if run else set())):
        print(f"fails: {name}")


main(sys.argv[1:])
