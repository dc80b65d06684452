"""The parts of tests/gpu/run; only Python's standard library is needed."""
