"""Rows to model: files other people write, word vectors, and made-up rows of the shape of the paper's.

`.npy`, `.fvecs` and `.bvecs` are memory-mapped; other formats are read once into float32. Row ids follow the
order of the file. Whatever is wrong with a file is a `ValueError` that names it.
"""

from lazygumbel.datasets.clusters import synthetic
from lazygumbel.datasets.files import read, rows_of, unit_rows
from lazygumbel.datasets.words import glove, word_vectors

__all__ = [
    "glove",
    "read",
    "rows_of",
    "synthetic",
    "unit_rows",
    "word_vectors",
]
