"""A process whose children change a model until they are killed: see `test_live_durable`.

Started with a folder and a file; for every line (a seed) it forks a child, says its pid, waits for its end and says so.
A child writes what it is about to do to the file, and again when that is done.
"""

import json
import os
import sys

import numpy as np

import lazygumbel as lg
from lazygumbel.live import rows as live_rows

D = 6


def rows_of(tag, count):
    return np.random.default_rng(tag).standard_normal((count, D)).astype(np.float32)


def plan(rng, ids, tag):
    """The next change, as a dictionary."""
    kind = rng.choice(["add", "remove", "replace", "compact"], p=[0.5, 0.2, 0.25, 0.05])
    some = rng.choice(ids, min(len(ids) - 1, int(rng.integers(1, 6))), replace=False).tolist()
    count = int(rng.integers(1, 40)) if kind == "add" else len(some)
    return {"kind": str(kind), "ids": some, "tag": tag, "count": count}


def change(model, step):
    if step["kind"] == "add":
        model.add(rows_of(step["tag"], step["count"]))
    elif step["kind"] == "remove":
        model.remove(step["ids"])
    elif step["kind"] == "replace":
        model.replace(step["ids"], rows_of(step["tag"], step["count"]))
    else:
        model.compact()


def applied(held, size, step):
    """The rows by id, and how many ids were given, after a change."""
    held = dict(held)
    if step["kind"] == "add":
        new = rows_of(step["tag"], step["count"])
        held.update(zip(range(size, size + len(new)), new, strict=True))
        size += len(new)
    elif step["kind"] == "remove":
        for i in step["ids"]:
            del held[i]
    elif step["kind"] == "replace":
        held.update(zip(step["ids"], rows_of(step["tag"], step["count"]), strict=True))
    return held, size


def write(folder, acks, seed):
    live_rows._TAIL = 32
    rng = np.random.default_rng(seed)
    said = os.open(acks, os.O_WRONLY | os.O_APPEND)
    model = lg.LogLinear.load(folder, mode="r+")
    for number in range(10_000):
        step = plan(rng, model.ids, 1_000_000 * seed + number)
        os.write(said, (json.dumps(step) + "\n").encode())
        change(model, step)
        os.write(said, b"done\n")


if __name__ == "__main__":
    for line in sys.stdin:
        pid = os.fork()
        if pid == 0:
            write(sys.argv[1], sys.argv[2], int(line))
            os._exit(1)
        print(pid, flush=True)
        os.waitpid(pid, 0)
        print("over", flush=True)
