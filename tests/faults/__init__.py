"""Hostile conditions: bad files, odd numbers, kills and load. The whole by ``./run faults``, a quick part in the suite."""
