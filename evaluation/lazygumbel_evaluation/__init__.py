"""The evaluation of Mussmann, Levy and Ermon (2017), on any rows, and what benchmarks measure with.

report/        what was measured as plain data, and how it is shown
harness/       one clock, one brute force, one source of rows and thetas; exact answers; what is kept between runs
experiments/   one small file an experiment of the paper
"""
