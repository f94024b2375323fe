"""Readers of files: rasters, point clouds, PLY, HDF5 of GEO-Bench, npy, tables and lists of names."""
