"""A run as spans of OpenTelemetry."""
