"""A family that does not load."""

import acme_has_no_such_module  # noqa: F401
