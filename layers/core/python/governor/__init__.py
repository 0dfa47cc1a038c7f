"""GPU Governor: decides about GPU capacity and money on AWS."""

__version__ = "0.1.0"
