"""One construct a file."""
