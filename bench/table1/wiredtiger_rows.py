"""For table1.py: a WiredTiger insert (journal on, then a checkpoint), or a read from a closed file, of values that come from and
go to a socket.

    wiredtiger_rows.py insert|read DIRECTORY SIZE TIMES
"""

import hashlib
import socket
import sys
import threading

import wiredtiger

what, directory, size, times = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
TABLE = "table:values"
FORMAT = "key_format=i,value_format=u,leaf_page_max=32KB,leaf_value_max=64MB"


def value(i):
    """Different in every place, the same for the same number."""
    return hashlib.shake_128(b"%d" % i).digest(size)


ours, theirs = socket.socketpair()
log = "log=(enabled),transaction_sync=(enabled=true,method=none)"
connection = wiredtiger.wiredtiger_open(directory, f"create,cache_size=256MB,checkpoint=(wait=0),{log}")
session = connection.open_session()
if what == "insert":
    session.create(TABLE, FORMAT)
    cursor = session.open_cursor(TABLE)
    client = threading.Thread(target=lambda: [theirs.sendall(value(i)) for i in range(times)])
    client.start()
    buffer = bytearray(size)
    for i in range(times):
        view = memoryview(buffer)
        while len(view):
            view = view[ours.recv_into(view) :]
        cursor[i] = bytes(buffer)
    client.join()
    session.checkpoint()
else:
    cursor = session.open_cursor(TABLE)
    wrong = []

    def read():
        for i in range(times):
            got = bytearray()
            while len(got) < size:
                got += theirs.recv(size - len(got))
            if got != value(i):
                wrong.append(i)

    client = threading.Thread(target=read)
    client.start()
    for i in range(times):
        ours.sendall(cursor[i])
    client.join()
    assert not wrong, wrong
cursor.close()
connection.close()
