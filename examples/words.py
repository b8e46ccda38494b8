"""Build a model over 400,000 GloVe word vectors, then show nearest words and softmax draws for a few of them."""

import sys
import time
from pathlib import Path

from rich.console import Console
from rich.table import Table

import lazygumbel as lg
from lazygumbel import datasets

WORDS = ("river", "piano", "physics", "bread")
TEMPERATURE = 0.05
MODEL = Path("demo-model")


def main() -> None:
    console = Console(highlight=False)
    start = time.perf_counter()
    model = lg.LogLinear.build(datasets.glove(), rng=0)
    model.save(MODEL)
    features = model.features
    names = features.names
    if names is None:
        sys.exit("the GloVe rows carry no names")
    built = time.perf_counter() - start
    console.print(f"\nModel over {features.n:,} words x {features.d}, built and saved to {MODEL}/ in {built:.1f} s.\n")

    table = Table(
        "word", "nearest words", f"drawn from the softmax at temperature {TEMPERATURE}", "log Z", "rows looked at"
    )
    for word in WORDS:
        dist = model(features.gather(names.find(word)), temperature=TEMPERATURE)
        nearest = dist.top_k(6)
        drawn = dist.sample(6, rng=0)
        log_z = dist.log_partition(rng=0)
        table.add_row(
            word,
            ", ".join(names[i] for i in nearest.ids[1:]),
            ", ".join(names[i] for i in drawn.ids),
            f"{log_z.value:.3f} ± {log_z.stderr:.3f}",
            f"{nearest.rows / features.n:.1%}, {drawn.rows / features.n:.1%}, {log_z.rows / features.n:.1%}",
        )
    console.print(table)
    console.print(f"\nTry:  .venv/bin/lazygumbel sample {MODEL} 10 --name river --temperature {TEMPERATURE}")


if __name__ == "__main__":
    main()
