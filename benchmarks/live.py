"""Rows that change: what a change costs, and what draws cost after many.

    python benchmarks/live.py [--photos PATH] [--rows N] [--json PATH]

`--photos` is a `.npy` file of rows, which are scaled to unit norm; without it clustered rows of the paper's shape,
`--rows` of them. Held-out rows are added, and some are the thetas. Encoding is what sealing and merging of segments
takes; it is reported by itself. Draws are single ones at temperature 0.05, in turns with those of a fresh build. Builds
and compactions take turns, too, of which the median counts. Each bar is followed by whether it was met.
"""

import argparse
import json
import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

import lazygumbel as lg
from common import clock_together
from lazygumbel import datasets
from lazygumbel.live import rows as live_rows
from lazygumbel_evaluation.harness.clock import Pace

ALTERNATING = Pace(rest_seconds=0.0, turn_seconds=0.05, least_seconds=4.0)
"""Short turns, and many: a machine may change its speed within seconds by more than two models differ."""
SINGLE, BATCH, THETAS, HELD_OUT = 10_000, 1_000, 200, 20_000
TURNS = 3
"""Of a build and a compaction. The first of each waits for memory that the machine has not handed out before."""
BARS = {
    "single add, us": 20.0,
    "add in batches of 1,000, us a row": 2.0,
    "remove 1,000 ids, ms": 1.0,
    "a draw, a tenth replaced, of a fresh build": 1.3,
    "compact, of a build": 0.25,
    "a draw, compacted, of a fresh build": 1.05,
}
"""At most."""


class Encoding:
    """Seconds spent on sealing segments while `with` it."""

    def __enter__(self) -> "Encoding":
        self.seconds, self._merge = 0.0, live_rows.merge
        live_rows.merge = self._timed
        return self

    def __exit__(self, *_: object) -> None:
        live_rows.merge = self._merge

    def _timed(self, *arguments: object) -> object:
        started = time.perf_counter()
        try:
            return self._merge(*arguments)
        finally:
            self.seconds += time.perf_counter() - started


def clock(call: Callable[[], object]) -> tuple[float, float]:
    """Seconds beyond encoding, and of encoding."""
    with Encoding() as encoding:
        started = time.perf_counter()
        call()
        return time.perf_counter() - started - encoding.seconds, encoding.seconds


def rows_of(path: Path | None, count: int) -> np.ndarray:
    if path is None:
        features = datasets.synthetic(count + HELD_OUT, 128, rng=0)
    else:
        features = lg.Features.of(np.load(path, mmap_mode="r")).unit_norm()
    return features.gather(np.random.default_rng(0).permutation(features.n))


def changes(model: lg.LogLinear, new: np.ndarray) -> dict[str, float]:
    """Microseconds of changes in memory."""
    single = clock(lambda: [model.add(row[None]) for row in np.resize(new, (SINGLE, new.shape[1]))])
    batches = [np.ascontiguousarray(new[start : start + BATCH]) for start in range(0, 10 * BATCH, BATCH)]
    batched = clock(lambda: [model.add(batch) for batch in batches])
    gone = np.random.default_rng(1).choice(model.ids, (10, BATCH), replace=False)
    removed = [clock(lambda ids=ids: model.remove(ids))[0] for ids in gone]
    return {
        "single add, us": 1e6 * single[0] / SINGLE,
        "its encoding, us": 1e6 * single[1] / SINGLE,
        "add in batches of 1,000, us a row": 1e6 * batched[0] / (10 * BATCH),
        "encoding in batches, us a row": 1e6 * batched[1] / (10 * BATCH),
        "remove 1,000 ids, ms": 1e3 * float(np.median(removed)),
    }


def durable(model: lg.LogLinear, new: np.ndarray) -> dict[str, float]:
    """Batches of 1,000 on disk, against writing and flushing as many bytes."""
    with tempfile.TemporaryDirectory() as folder:
        model.save(Path(folder) / "model")
        with lg.LogLinear.load(Path(folder) / "model", mode="r+") as opened:
            ours = clock(lambda: [opened.add(new[:BATCH]) for _ in range(10)])[0]
        payload = new[:BATCH].tobytes()
        started = time.perf_counter()
        with (Path(folder) / "plain").open("wb", buffering=0) as stream:
            for _ in range(10):
                stream.write(payload)
                os.fsync(stream.fileno())
        disk = time.perf_counter() - started
    return {"durable batch of 1,000, ms": 1e2 * ours, "the same bytes to disk, ms": 1e2 * disk}


def replace_some(model: lg.LogLinear, new: np.ndarray) -> float:
    """Replace a tenth of the rows, in batches; seconds."""
    rng = np.random.default_rng(2)
    chosen = rng.choice(model.ids, model.features.n // 10, replace=False)
    started = time.perf_counter()
    for start in range(0, len(chosen), BATCH):
        ids = chosen[start : start + BATCH]
        noise = np.float32(0.01) * rng.standard_normal((len(ids), new.shape[1]), dtype=np.float32)
        model.replace(ids, new[rng.integers(len(new), size=len(ids))] + noise)
    return time.perf_counter() - started


def compare(ours: lg.LogLinear, fresh: lg.LogLinear, thetas: np.ndarray, name: str) -> dict[str, float]:
    """Draws of two models, in turns."""
    clocked = clock_together(
        {
            which: (lambda theta, model=model: model(theta, temperature=0.05).sample(), list(thetas))
            for which, model in (("ours", ours), ("fresh", fresh))
        },
        ALTERNATING,
    )
    return {
        f"a draw, {name}, us": 1e6 * clocked["ours"][0],
        f"a draw, {name}, of a fresh build": clocked["ours"][0] / clocked["fresh"][0],
    }


def draws(model: lg.LogLinear, thetas: np.ndarray, new: np.ndarray) -> dict[str, float]:
    """After a tenth of the rows was replaced, and after `compact`, against those of a fresh build."""
    found = {"replacing a tenth, us a row": 1e6 * replace_some(model, new) / (model.features.n // 10)}
    found["parts"] = float(model.drift().parts)
    rows = model.settled().features
    builds, compacts = list[float](), list[float]()
    for _ in range(TURNS):
        fresh = compacted = None  # their memory is used again
        started = time.perf_counter()
        fresh = lg.LogLinear(lg.PartitionIndex.build(rows, rng=0))
        builds.append(time.perf_counter() - started)
        compacted = model.snapshot()
        started = time.perf_counter()
        compacted.compact()
        compacts.append(time.perf_counter() - started)
    found |= {"a build, s": float(np.median(builds)), "compact, s": float(np.median(compacts))}
    found |= {"the first build, s": builds[0], "the first compact, s": compacts[0]}
    found["compact, of a build"] = found["compact, s"] / found["a build, s"]
    assert fresh is not None and compacted is not None
    found |= compare(model, fresh, thetas, "a tenth replaced")
    return found | compare(compacted, fresh, thetas, "compacted")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--photos", type=Path)
    parser.add_argument("--rows", type=int, default=200_000)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    rows = rows_of(options.photos, options.rows)
    new, kept = rows[:HELD_OUT], rows[HELD_OUT:]
    index = lg.PartitionIndex.build(kept, rng=0)
    warm = lg.LogLinear(index)
    warm.add(new[:5000])
    warm(new[0], temperature=0.05).sample()
    found = {"rows": float(len(kept))}
    found |= changes(lg.LogLinear(index), new) | durable(lg.LogLinear(index), new)
    found |= draws(lg.LogLinear(index), new[-THETAS:], new)
    for name, value in found.items():
        bar = BARS.get(name)
        met = "" if bar is None else f"    at most {bar:g}: {'yes' if value <= bar else 'NO'}"
        print(f"{name:46}{value:12.4g}{met}")
    if options.json is not None:
        options.json.write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
