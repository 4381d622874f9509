"""Many ranks of one job: what each leaves behind when its trace is dropped, and what they say together."""
