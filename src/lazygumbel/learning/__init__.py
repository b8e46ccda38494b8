"""Maximum likelihood by gradient ascent: `fit`, what it returns, and how E[phi] is estimated on the way."""

from lazygumbel.learning.anchored import Anchored
from lazygumbel.learning.checkpoint import check_file
from lazygumbel.learning.fit import fit
from lazygumbel.learning.records import Diverged, Fit, History, Interrupted, Record

__all__ = ["Anchored", "Diverged", "Fit", "History", "Interrupted", "Record", "check_file", "fit"]
