"""A comparison of two runs: for people, as lines of the contract, and as a page."""
