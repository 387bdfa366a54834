"""What stands before the RPC stage: captures of one kind, of packets or of messages, → `TpMessage`s."""
