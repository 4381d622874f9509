"""Traces in formats other than Kineto's JSON, as rows that the reader knows: Perfetto's and Nsight Systems'."""
