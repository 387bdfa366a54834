"""Every view over every capture, kept as hashes: what is asked, how it runs, what is kept."""
