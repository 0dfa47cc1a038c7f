"""Adapters of the ports to AWS, one service a module."""
