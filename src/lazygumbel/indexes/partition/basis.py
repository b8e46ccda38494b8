"""Coordinates in which all inner products are the same and codes of rows tell more.

theta . e is (theta A) . (e A^-1) for any symmetric invertible A. A code rotated at random spreads its error evenly:
what a logit is off by grows with |theta A| |e A^-1|. Where thetas are long in other directions than those in which
residuals vary, as hidden states and the head of a language model are, the mean of that product is smaller for a better
A than one. With M the second moments of thetas and C those of residuals, trace(M A A) trace(C (A A)^-1) is least for
A A = M^-1/2 (M^1/2 C M^1/2)^1/2 M^-1/2, the geometric mean of M^-1 and C.
"""

import numpy as np

from lazygumbel._support.arrays import Floats

__all__ = ["LARGEST_STRETCH", "choose_basis"]


LARGEST_STRETCH = 32.0
"""The longest that a vector may become beside the shortest: more, and float32 would lose what is gained."""
_SHARE, _LEAST, _MOST = 0.2, 1e-3, 0.5
"""Of the mean of all directions that is added to each: times d over how many vectors there are, since few say little
of most directions; at least, and at most."""


def choose_basis(residuals: Floats, thetas: Floats) -> Floats:
    """A, (d, d), symmetric, of about determinant one: thetas become theta A, residuals e A^-1."""
    moments = _moments(thetas)
    root = _power(moments, 0.5)
    inverse = np.linalg.inv(root)
    matrix = _power(inverse @ _power(root @ _moments(residuals) @ root, 0.5) @ inverse, 0.5)
    values, vectors = np.linalg.eigh(matrix)
    logarithms = np.log(values)
    logarithms -= logarithms.mean()
    limit = np.log(LARGEST_STRETCH) / 2
    return (vectors * np.exp(logarithms.clip(-limit, limit))) @ vectors.T


def _moments(vectors: Floats) -> Floats:
    """Second moments, in units of their mean over directions, and some of that mean in every direction."""
    count, d = vectors.shape
    found = vectors.T @ vectors
    share = min(max(_SHARE * d / count, _LEAST), _MOST)
    return found / max(float(np.trace(found)) / d, 1e-30) + share * np.eye(d)


def _power(matrix: Floats, exponent: float) -> Floats:
    """A power of a symmetric matrix that is positive definite."""
    values, vectors = np.linalg.eigh((matrix + matrix.T) / 2)
    return (vectors * np.maximum(values, 1e-30) ** exponent) @ vectors.T
