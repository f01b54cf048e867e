"""The engine: requests in, rounds, events out."""
