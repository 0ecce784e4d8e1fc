"""Clocks that count the seconds of the processor: for machines that have other work. A folder of PYTHONPATH, see
recipes/comparisons.py; seconds are right with one thread alone."""

import time

time.perf_counter = time.monotonic = time.process_time
