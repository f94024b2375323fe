"""Hostile conditions: bad files, odd numbers, kills and load. All of it by ``./run faults``, some in the suite."""
