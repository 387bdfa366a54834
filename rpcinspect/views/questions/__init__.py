"""Questions about a whole run: what each answer consists of, as tables for people and as lines of JSON."""
