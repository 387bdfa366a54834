"""Plans of replays and what came of them: for people, and as lines of the contract."""
