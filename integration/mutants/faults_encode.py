"""Faults in how columns become values of AVRO and JSON, and types of rows schemas."""

from integration.mutants.fault import Fault

FAULTS = (
    Fault(
        name="null-as-the-other-branch",
        file="pulsar_spark/wire/schemas/avro/avro_write.py",
        old="np.where(has, self._branch, self._null)",
        new="np.where(has, self._null, self._branch)",
        test="tests/wire/schemas/avro/test_avro_write.py::test_a_string_that_is_no_symbol",
    ),
    Fault(
        name="array-of-one-item-without-an-end",
        file="pulsar_spark/wire/schemas/avro/avro_write.py",
        old="None, 1), counts > 0)",
        new="None, 1), counts > 1)",
        test="tests/wire/schemas/avro/test_avro_write.py::test_the_bytes_are_those_of_fastavro",
    ),
    Fault(
        name="tenth-byte-of-a-varint-that-is-not-needed",
        file="pulsar_spark/wire/schemas/encode/cells.py",
        old="is_widest = high > 0x7F",
        new="is_widest = high > 0x7E",
        test="tests/wire/schemas/avro/test_avro_write.py::test_varints_of_every_length",
    ),
    Fault(
        name="decimals-of-the-wrong-rows-of-a-slice",
        file="pulsar_spark/wire/schemas/encode/cells.py",
        old="16 * column.offset : 16 * (column.offset + len(column))",
        new="0 : 16 * len(column)",
        test="tests/wire/schemas/avro/test_avro_write.py::test_any_schema_and_any_rows",
    ),
    Fault(
        name="decimal-without-its-byte-of-the-sign",
        file="pulsar_spark/wire/schemas/encode/cells.py",
        old="words >= np.uint64(1 << (8 * size - 1))",
        new="words > np.uint64(1 << (8 * size - 1))",
        test="tests/wire/schemas/avro/test_avro_write.py::test_decimals_have_as_few_bytes_as_javas",
    ),
    Fault(
        name="row-before-the-one-whose-first-item-is-wrong",
        file="pulsar_spark/wire/schemas/encode/nested.py",
        old='misfit.row, "right")',
        new='misfit.row, "left")',
        test="tests/wire/schemas/avro/test_avro_write.py::test_the_row_of_an_item",
    ),
    Fault(
        name="row-counted-without-those-that-are-null",
        file="pulsar_spark/wire/schemas/encode/nested.py",
        old="int(np.flatnonzero(has)[misfit.row])",
        new="misfit.row",
        test="tests/wire/schemas/avro/test_avro_write.py::test_the_row_and_path_of_a_value_deep_within",
    ),
    Fault(
        name="bigint-that-loses-digits-as-a-double",
        file="pulsar_spark/wire/schemas/encode/column_values.py",
        old="            is_inside & (back == numbers),\n",
        new="            is_inside,\n",
        test="tests/wire/schemas/avro/test_avro_write.py::test_integers_that_a_floating_point_number_does_not_hold",
    ),
    Fault(
        name="decimal-that-has-more-digits-than-its-field",
        file="pulsar_spark/wire/schemas/encode/column_fit.py",
        old="digits <= avro.precision - avro.scale",
        new="digits <= avro.precision",
        test="tests/wire/schemas/encode/test_column_fit.py::"
        "test_each_type_fits_what_it_should_and_nothing_else",
    ),
    Fault(
        name="default-with-the-bytes-of-a-branch-that-it-is-not",
        file="pulsar_spark/wire/schemas/encode/avro_defaults.py",
        old="                del self.data[before:]\n",
        new="                continue\n",
        test="tests/wire/schemas/encode/test_avro_defaults.py::test_defaults",
    ),
    Fault(
        name="comma-before-the-first-field-that-is-there",
        file="pulsar_spark/wire/schemas/json/json_write.py",
        old="is_any = is_any | has",
        new="is_any = True",
        test="tests/wire/schemas/json/test_json_write.py::test_nulls_are_left_out",
    ),
    Fault(
        name="backslashes-of-escapes-escaped",
        file="pulsar_spark/wire/schemas/encode/json_text.py",
        old='    "\\\\": "\\\\\\\\",\n    \'"\': \'\\\\"\',\n',
        new='    \'"\': \'\\\\"\',\n    "\\\\": "\\\\\\\\",\n',
        test="tests/wire/schemas/json/test_json_write.py::test_every_letter",
    ),
    Fault(
        name="double-that-looks-like-an-integer",
        file="pulsar_spark/wire/schemas/encode/json_text.py",
        old="    if is_whole.any():\n",
        new="    if False:\n",
        test="tests/wire/schemas/json/test_json_write.py::test_floating_point_numbers_look_like_such",
    ),
    Fault(
        name="new-field-that-old-rows-do-not-have",
        file="pulsar_spark/wire/schemas/schema_of.py",
        old="column = new.column.with_nullable(True)",
        new="column = new.column",
        test="tests/wire/schemas/test_schema_of.py::test_new_fields_come_behind",
    ),
    Fault(
        name="two-records-of-one-name",
        file="pulsar_spark/wire/schemas/schema_of.py",
        old="        while free in self._taken:\n",
        new="        while False:\n",
        test="tests/wire/schemas/test_schema_of.py::test_names_of_records_differ",
    ),
)
