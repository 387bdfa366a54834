"""Both pickle dialects, read symbolically: nothing is imported and nothing is called, ever."""
