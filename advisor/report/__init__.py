"""What a report holds besides its findings, and report.json itself."""
