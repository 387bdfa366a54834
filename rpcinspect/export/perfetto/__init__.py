"""A run in the Trace Event Format."""
