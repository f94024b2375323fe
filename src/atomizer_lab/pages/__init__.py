"""Pages that need no other file: their style, parts, charts and the little that moves in them."""
