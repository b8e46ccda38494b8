"""The kernels in Numba, by name. Same signatures and results as `reference`."""

from lazygumbel.kernels.boxing import enter, prepare, sample_to, weigh_sample
from lazygumbel.kernels.codes import lookup_tables, scan
from lazygumbel.kernels.contest import assist, assist_theta, open_race, race_thetas, set_reference, settle
from lazygumbel.kernels.encode import encode_rows, interleave, move_codes
from lazygumbel.kernels.parts import draw_few, race_part
from lazygumbel.kernels.race import all_ceilings, draw, refine, temper
from lazygumbel.kernels.scoring import add_by_cell, add_pairs, gather_dot, sum_pairs, sum_rows
from lazygumbel.kernels.strata import sample_strata, score_wide
from lazygumbel.kernels.top import top_rows

__all__ = [
    "add_by_cell",
    "add_pairs",
    "all_ceilings",
    "assist",
    "assist_theta",
    "draw",
    "draw_few",
    "encode_rows",
    "enter",
    "gather_dot",
    "interleave",
    "lookup_tables",
    "move_codes",
    "open_race",
    "prepare",
    "race_part",
    "race_thetas",
    "refine",
    "sample_strata",
    "sample_to",
    "scan",
    "score_wide",
    "set_reference",
    "settle",
    "sum_pairs",
    "sum_rows",
    "temper",
    "top_rows",
    "weigh_sample",
]
