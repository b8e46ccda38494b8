"""The kernels in Numba, by name. Same signatures and results as `reference`."""

from lazygumbel.kernels.codes import lookup_tables, prepare, scan
from lazygumbel.kernels.encode import encode_nibbles, interleave
from lazygumbel.kernels.race import all_ceilings, draw, score_above, settle
from lazygumbel.kernels.scoring import gather_dot, sum_pairs, sum_rows
from lazygumbel.kernels.strata import sample_strata, weigh_sample
from lazygumbel.kernels.top import top_rows

__all__ = [
    "all_ceilings",
    "draw",
    "encode_nibbles",
    "gather_dot",
    "interleave",
    "lookup_tables",
    "prepare",
    "sample_strata",
    "scan",
    "score_above",
    "settle",
    "sum_pairs",
    "sum_rows",
    "top_rows",
    "weigh_sample",
]
