"""From a name to a loaded and checked model."""
