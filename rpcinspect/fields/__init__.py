"""What there is to say of a message: one table of fields, which filters, lines of JSON, tables and their
documentation read. Pure."""

from __future__ import annotations
