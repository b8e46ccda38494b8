"""The evaluation of Mussmann, Levy and Ermon (2017), on any rows: one small file an experiment, one report."""
