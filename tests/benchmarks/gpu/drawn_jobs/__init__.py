"""Traces drawn from the CUDA and ROCm runtimes' semantics, of jobs and faults that people reported."""
