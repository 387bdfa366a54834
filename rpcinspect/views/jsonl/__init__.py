"""The output contract, schema 1: messages and answers as lines of JSON on which other people rely."""
