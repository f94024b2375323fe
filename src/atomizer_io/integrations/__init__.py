"""Atomizer-IO inside other libraries; each module needs the one that it is named after, and nothing here imports it."""
