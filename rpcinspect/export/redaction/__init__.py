"""A session as it was, but for what its users would not show: the pure part of `--redact`.

Sessions, records and bytes come in, the same with other values go out, of the same lengths. Nothing is
opened here. docs/redaction.md says what stays visible.
"""
