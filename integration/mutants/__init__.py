"""Mutants: faults that are planted one at a time, each of which one named test must catch.

They are of decisions that lose rows or double them: one of each kind that has been a bug, or nearly. What
else the tests miss, ``python3 -m integration mutmut`` finds. The faults are data; :data:`FAULTS` is all of
them, :mod:`integration.mutants.run` the program that plants them.
"""

from integration.mutants import faults_planning, faults_reading, faults_writing
from integration.mutants.fault import Fault

FAULTS: tuple[Fault, ...] = (
    *faults_reading.FAULTS,
    *faults_writing.FAULTS,
    *faults_planning.FAULTS,
)
