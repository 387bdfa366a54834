"""Bytes on disk or on a pipe → blocks of packets. The only stage that opens files."""
