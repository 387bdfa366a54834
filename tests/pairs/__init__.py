"""Pairs of runs: what comparing bundled ones must say, and jobs that are recorded afresh and scored."""
