"""The package is taken from the build folder; see jobs.py."""
import sys

import jobs

sys.path.insert(0, str(jobs.BUILD / "python"))
