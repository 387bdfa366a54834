"""Tests of rpcinspect/recorder/native."""
