"""The Lambda layers: `core` is the product itself, `dependencies` is what it needs of others."""
