"""Mutants: faults that are planted one at a time, each of which one named test must catch.

The faults are data, in one file a layer. :data:`FAULTS` is all of them, :mod:`integration.mutants.run` the
program that plants them.
"""

from integration.mutants import (
    faults_client,
    faults_dedup,
    faults_encode,
    faults_hostile,
    faults_keys,
    faults_kinds,
    faults_protocol,
    faults_sink_schemas,
    faults_spark,
    faults_typed,
    faults_values,
    faults_wire,
    faults_writing,
)
from integration.mutants.fault import Fault

FAULTS: tuple[Fault, ...] = (
    *faults_values.FAULTS,
    *faults_encode.FAULTS,
    *faults_wire.FAULTS,
    *faults_kinds.FAULTS,
    *faults_protocol.FAULTS,
    *faults_writing.FAULTS,
    *faults_dedup.FAULTS,
    *faults_keys.FAULTS,
    *faults_client.FAULTS,
    *faults_spark.FAULTS,
    *faults_sink_schemas.FAULTS,
    *faults_typed.FAULTS,
    *faults_hostile.FAULTS,
)
