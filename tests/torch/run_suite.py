#!/usr/bin/python3
"""Runs the suite as CTest wants it: exit code 77, and one line why, where it cannot be run.

    PYTHONPATH=build/python tests/torch/run_suite.py [arguments for pytest]
"""
import importlib
import os
import sys

SKIPPED = 77


def main():
    for module in ("torch", "pytest", "tutti_torch"):
        try:
            importlib.import_module(module)
        except ImportError as missing:
            print(f"skipped: {missing}")
            return SKIPPED
    import pytest
    here = os.path.dirname(os.path.abspath(__file__))
    return pytest.main(["-q", "-p", "no:cacheprovider", "-rs", "--durations=5", here, *sys.argv[1:]])


if __name__ == "__main__":
    sys.exit(main())
