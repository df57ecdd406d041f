"""Random commands and calls, as a new or a hostile user would make them: what goes wrong there is a bug.

`python -m torchdeal.fuzz --minutes 10` runs it; a short part of it is in the test suite.
"""
