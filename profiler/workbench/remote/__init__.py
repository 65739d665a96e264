"""Measuring on another machine: a job is a zip in and a zip out, over ssh or a Dask cluster."""
