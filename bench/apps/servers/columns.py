"""pyarrow: reads the columns of a Parquet file again and again, each time whole, and adds one of them up.

columns.py FILE [ROUNDS]     makes FILE where it is not there"""

import os
import sys

import pyarrow
import pyarrow.compute
import pyarrow.parquet

path, rounds = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 40
if not os.path.exists(path):
    rows = 1_000_000
    columns = {name: pyarrow.array([(i * 2654435761 + at) % 1_000_003 for i in range(rows)]) for at, name in enumerate("abcd")}
    pyarrow.parquet.write_table(pyarrow.table(columns), path + ".new", compression="none")
    os.rename(path + ".new", path)
total = 0
for _ in range(rounds):
    with open(path, "rb") as file:
        table = pyarrow.parquet.read_table(pyarrow.BufferReader(file.read()), use_threads=False)
    total += pyarrow.compute.sum(table["a"]).as_py()
print(total)
