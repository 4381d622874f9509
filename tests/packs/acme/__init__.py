"""A rule pack as a third party would write one."""
