"""The experiments of the paper: each takes a `Bench` and returns a `Section` of plain data."""
