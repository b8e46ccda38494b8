"""Rows to model: files other people write, the data of the paper, and made-up rows of its shape.

`.npy`, `.fvecs` and `.bvecs` are memory-mapped; other formats are read once into float32. Row ids follow the
order of the file. Whatever is wrong with a file is a `ValueError` that names it.
"""

from lazygumbel.datasets.activations import imagenet
from lazygumbel.datasets.clusters import synthetic
from lazygumbel.datasets.files import read, rows_of
from lazygumbel.datasets.resnet import imagenet_activations
from lazygumbel.datasets.unit import photos, unit_rows
from lazygumbel.datasets.words import glove, word_vectors

__all__ = [
    "glove",
    "imagenet",
    "imagenet_activations",
    "photos",
    "read",
    "rows_of",
    "synthetic",
    "unit_rows",
    "word_vectors",
]
