"""The kernels in Numba, by name. Same signatures and results as `reference`."""

from lazygumbel.kernels.codes import lookup_tables, prepare, scan
from lazygumbel.kernels.encode import encode_rows, interleave
from lazygumbel.kernels.race import all_ceilings, draw, draw_distinct, refine, temper
from lazygumbel.kernels.scoring import gather_dot, sum_pairs, sum_rows
from lazygumbel.kernels.strata import sample_strata, score_wide, weigh_sample
from lazygumbel.kernels.top import top_rows

__all__ = [
    "all_ceilings",
    "draw",
    "draw_distinct",
    "encode_rows",
    "gather_dot",
    "interleave",
    "lookup_tables",
    "prepare",
    "refine",
    "sample_strata",
    "scan",
    "score_wide",
    "sum_pairs",
    "sum_rows",
    "temper",
    "top_rows",
    "weigh_sample",
]
