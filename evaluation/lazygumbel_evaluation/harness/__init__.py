"""What experiments and benchmarks measure with."""
