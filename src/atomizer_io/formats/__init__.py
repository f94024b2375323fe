"""Files of the field, read: rasters, point clouds, GEO-Bench's HDF5 and lists of names."""
