"""In-memory ports with the semantics of the AWS adapters; tests/contract holds both to one suite."""
