"""Messages for Wireshark: a dissector with a table of them, and captures with comments at their packets."""
