"""Sessions and records → text. A view writes to the stream that it is given and opens nothing."""
