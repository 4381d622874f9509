"""Callbacks for training frameworks, each on `advisor.profile`. A module here imports its framework; this one does not.

`advisor run` profiles the same scripts without a change to them, and remains the recommended way. A callback is for
loops that no command starts (a notebook, a service, a cluster's scheduler), and for profiles that are chosen by epoch.
"""
