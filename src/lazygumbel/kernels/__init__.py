"""The hot loops: pure functions, arrays in and arrays out.

`reference` (NumPy) is the specification, `compiled` (Numba) its fast twin; tests hold them equal. The compiled
twin is loaded on first use, so that importing the package stays quick; the reference, if Numba is not to compile
(`NUMBA_DISABLE_JIT=1`, for debugging).
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lazygumbel.kernels.compiled import (
        add_by_cell,
        add_pairs,
        all_ceilings,
        draw,
        draw_few,
        encode_bytes,
        encode_rows,
        enter,
        estimate_from_sample,
        find_first,
        gather_dot,
        interleave,
        lookup_tables,
        move_codes,
        open_race,
        pack_race,
        pack_stored,
        pack_workspaces,
        prepare,
        race_thetas,
        refine,
        run_helper,
        sample_strata,
        sample_theta,
        sample_to,
        scan,
        score_wide,
        set_reference,
        settle,
        sum_pairs,
        sum_rows,
        temper,
        top_rows,
        top_theta,
    )

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


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    disabled: bool = import_module("numba").config.DISABLE_JIT
    twin = import_module("lazygumbel.kernels.reference" if disabled else "lazygumbel.kernels.compiled")
    globals()[name] = getattr(twin, name)  # so that this is asked once
    return globals()[name]
