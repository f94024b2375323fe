"""Every table and figure of the paper, each in a file: its numbers, the runs of each scale, the table beside it."""
