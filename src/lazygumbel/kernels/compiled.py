"""The kernels in Numba, by name. Same signatures and results as `reference`."""

from lazygumbel.kernels import codes, contest, race, serving, strata, tables, top
from lazygumbel.kernels.boxing import (
    enter,
    estimate_from_sample,
    open_race,
    pack_race,
    pack_stored,
    pack_workspaces,
    prepare,
    race_thetas,
    sample_theta,
    sample_to,
    top_theta,
)
from lazygumbel.kernels.decorators import door
from lazygumbel.kernels.encode import encode_bytes, encode_rows, interleave, move_codes
from lazygumbel.kernels.parts import draw_few, find_first
from lazygumbel.kernels.scoring import add_by_cell, add_pairs, gather_dot, sum_pairs, sum_rows
from lazygumbel.kernels.telling import tell

__all__ = [
    "add_by_cell",
    "add_pairs",
    "all_ceilings",
    "draw",
    "draw_few",
    "encode_bytes",
    "encode_rows",
    "enter",
    "estimate_from_sample",
    "find_first",
    "gather_dot",
    "interleave",
    "lookup_tables",
    "move_codes",
    "open_race",
    "pack_race",
    "pack_stored",
    "pack_workspaces",
    "prepare",
    "race_thetas",
    "refine",
    "run_helper",
    "sample_strata",
    "sample_theta",
    "sample_to",
    "scan",
    "score_wide",
    "set_reference",
    "settle",
    "sum_pairs",
    "sum_rows",
    "temper",
    "top_rows",
    "top_theta",
]

tell()

lookup_tables = door(tables.lookup_tables)
scan = door(codes.scan)
set_reference = door(contest.set_reference)
settle = door(contest.settle)
all_ceilings = door(race.all_ceilings)
draw = door(race.draw)
refine = door(race.refine)
temper = door(race.temper)
run_helper = door(serving.run_helper)
sample_strata = door(strata.sample_strata)
score_wide = door(strata.score_wide)
top_rows = door(top.top_rows)
