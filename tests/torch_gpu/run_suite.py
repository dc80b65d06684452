#!/usr/bin/env python3
"""Runs the suite; exit code 77, and one line why, where it cannot be run.

    PYTHONPATH=build/python tests/torch_gpu/run_suite.py [arguments for pytest]
"""
import importlib
import os
import sys

SKIPPED = 77


def main():
    here = os.path.dirname(os.path.abspath(__file__))
    for module in ("torch", "pytest", "tutti_torch"):
        try:
            importlib.import_module(module)
        except ImportError as missing:
            print(f"skipped: {missing}")
            return SKIPPED
    import pytest
    sys.path.insert(0, here)
    from gpu import why_not
    if why_not():
        print(f"skipped: {why_not()}")
        return SKIPPED
    return pytest.main(["-q", "-p", "no:cacheprovider", "-rs", "--durations=10", here, *sys.argv[1:]])


if __name__ == "__main__":
    sys.exit(main())
