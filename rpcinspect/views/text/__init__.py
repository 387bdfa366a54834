"""What commands write for people on a terminal: lines of a table, sums below it, answers to questions."""
