"""What wiredtiger.py measures: one connection's documents, received and inserted as mongod does it.

    insert.py PORT DIRECTORY CHECKSUM(on|off) JOURNAL(on|off) CACHE_MB

A message is a header of 16 bytes (length of the body, operation, table, number) and a body. As in mongod, memory for the body is
allocated for each message, and filled by as many recv calls as it takes; the document is walked from field to field, and
its elements are copied into a document of its own, which is inserted, with its key into an index, in one transaction.
"""

import ctypes
import os
import socket
import struct
import sys

import wiredtiger

INSERT, READ, CREATE, CHECKPOINT, FLUSH, CLOSE = range(1, 7)
HEADER = struct.Struct("<IIII")
INT32 = struct.Struct("<i")

# bytearray(n) would fill it with zeros, which malloc does not
fresh = ctypes.pythonapi.PyByteArray_FromStringAndSize
fresh.restype, fresh.argtypes = ctypes.py_object, (ctypes.c_void_p, ctypes.c_ssize_t)


def receive(s, length):
    """A new buffer with the next `length` bytes, or None at the end of the connection."""
    buffer = fresh(None, length)
    view = memoryview(buffer)
    while len(view):
        n = s.recv_into(view)
        if not n:
            return None
        view = view[n:]
    return buffer


def element_end(buffer, at):
    """Where the value of the BSON element at `at` begins, and where the element ends."""
    value = buffer.index(b"\0", at) + 1
    length = INT32.unpack_from(buffer, value)[0]
    return value, value + 4 + length + (1 if buffer[at] == 5 else 0)  # binary data has a byte for its kind


def document(buffer):
    """The key of a received document, and the document put together of copies of its elements."""
    view, parts, at, key = memoryview(buffer), [], 4, None
    while buffer[at]:
        value, end = element_end(buffer, at)
        if key is None:
            key = bytes(view[value + 4 : end - 1])
        parts.append(view[at:end])
        at = end
    length = 4 + sum(map(len, parts)) + 1
    return key, b"".join([INT32.pack(length), *parts, b"\0"])


class Store:
    def __init__(self, directory, checksum, journal, cache):
        os.makedirs(os.path.join(directory, "journal"), exist_ok=True)
        config = f"create,cache_size={cache}MB,eviction=(threads_min=4,threads_max=4),checkpoint=(wait=0)"
        if journal == "on":
            config += ",log=(enabled=true,path=journal)"
        self.checksum = checksum
        self.connection = wiredtiger.wiredtiger_open(directory, config)
        self.session = self.connection.open_session()
        self.cursors = {}

    def create(self, table):
        common = f"checksum={self.checksum},leaf_page_max=32KB,memory_page_max=10MB,split_pct=90,leaf_value_max=64MB"
        self.session.create(f"table:collection-{table}", f"key_format=q,value_format=u,{common}")
        self.session.create(f"table:index-{table}", f"key_format=u,value_format=q,{common}")

    def open(self, table):
        if table not in self.cursors:
            names = (f"table:collection-{table}", f"table:index-{table}")
            self.cursors[table] = [self.session.open_cursor(name) for name in names]
        return self.cursors[table]

    def insert(self, table, number, buffer):
        collection, index = self.open(table)
        key, value = document(buffer)
        self.session.begin_transaction()
        collection.set_key(number)
        collection.set_value(value)
        collection.insert()
        index.set_key(key)
        index.set_value(number)
        index.insert()
        self.session.commit_transaction()
        collection.reset()
        index.reset()

    def read(self, table, key):
        """By the index; empty if it is not there."""
        collection, index = self.open(table)
        index.set_key(key)
        if index.search():
            return b""
        collection.set_key(index.get_value())
        found = collection.get_value() if collection.search() == 0 else b""
        collection.reset()
        index.reset()
        return found


def main():
    port, directory, checksum, journal, cache = sys.argv[1:]
    store = Store(directory, checksum, journal, cache)
    listener = socket.create_server(("127.0.0.1", int(port)))
    s, _ = listener.accept()
    s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    s.sendall(HEADER.pack(0, 0, 0, os.getpid()))
    while header := receive(s, HEADER.size):
        length, operation, table, number = HEADER.unpack(header)
        buffer, answer = receive(s, length), b""
        if buffer is None:
            break
        if operation == INSERT:
            store.insert(table, number, buffer)
        elif operation == READ:
            answer = store.read(table, bytes(buffer))
        elif operation == CREATE:
            store.create(table)
        elif operation == CHECKPOINT:
            store.session.checkpoint()
        elif operation == FLUSH:
            store.session.log_flush("sync=on")
        elif operation == CLOSE:
            store.connection.close()
        s.sendall(HEADER.pack(len(answer), operation, table, number))
        if answer:
            s.sendall(answer)
        if operation == CLOSE:
            break


if __name__ == "__main__":
    main()
