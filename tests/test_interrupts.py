"""Ctrl-C in a loop of short calls is a KeyboardInterrupt, wherever it arrives."""

import subprocess
import sys
from textwrap import dedent

import pytest

SCRIPT = """
import os, random, signal, threading
import numpy as np
import lazygumbel as lg

signal.signal(signal.SIGINT, signal.default_int_handler)  # which may have been ignored where the tests were started
rows = np.random.default_rng(0).normal(size=(20_000, 16)).astype(np.float32)
model = lg.LogLinear(lg.PartitionIndex.build(rows, rng=0))

def ask(i):
    dist = model(rows[i], temperature=0.5)
    dist.{question}

ask(0)
stop = threading.Event()
found, waiting = [], threading.Event()

def interrupt():
    while not stop.is_set():
        if waiting.wait(1):
            stop.wait(0.002 + 0.004 * random.random())
            if waiting.is_set():
                waiting.clear()
                os.kill(os.getpid(), signal.SIGINT)

thread = threading.Thread(target=interrupt)
thread.start()
for trial in range(150):
    try:
        waiting.set()
        while True:
            for i in range(100):
                ask(i)
    except BaseException as error:
        found.append(type(error).__name__)
stop.set()
thread.join()
print(len(found), sorted(set(found)))
"""


@pytest.mark.parametrize("question", ["sample(rng=i)", "log_partition(rng=i)", "top_k(3)", "log_prob(i, rng=i)"])
def test_ctrl_c_is_ctrl_c(question: str):
    """In a process of its own: one that is interrupted at the wrong moment may not survive it."""
    script = dedent(SCRIPT).replace("{question}", question)
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout) == (0, "150 ['KeyboardInterrupt']\n"), done.stderr[-2000:]
