"""Tests of rpcinspect.files."""
