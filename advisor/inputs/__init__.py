"""Which files form a job, where output goes, and the progress of reading."""
