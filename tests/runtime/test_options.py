"""One order of precedence, and bad values refused in one line."""

from __future__ import annotations

import logging

import pytest
from accel_runtime.errors import ConfigError
from accel_runtime.options import (
    Settings,
    as_environment,
    detection_layer,
    environment_layer,
    file_layer,
    flag_layer,
    options_from,
    script_layer,
    seed_from,
    settle,
    unread_variables,
)


def test_the_first_source_that_says_a_key_decides_it() -> None:
    layers = [
        script_layer({"mixed_precision": "fp16", "cpu": None}),
        flag_layer({"mixed_precision": "bf16", "num_processes": "2"}),
        environment_layer({"ACCEL_NUM_PROCESSES": "3", "ACCEL_GRADIENT_ACCUMULATION_STEPS": "4"}),
        file_layer("accel.yaml", {"gradient_accumulation_steps": 5, "max_restarts": 6}),
        file_layer("user.yaml", {"max_restarts": 7, "tee": True}),
        detection_layer({"tee": False, "num_machines": "8"}),
    ]
    for count in range(len(layers)):
        assert settle(layers[count:]).origins.get("tee") == ("detected" if count == 5 else "user.yaml")
    settled = settle(layers)
    assert settled.origins == {
        "mixed_precision": "script",
        "num_processes": "flag",
        "gradient_accumulation_steps": "environment",
        "max_restarts": "accel.yaml",
        "tee": "user.yaml",
        "num_machines": "detected",
    }
    expected = {"mixed_precision": "fp16", "num_processes": 2, "gradient_accumulation_steps": 4, "max_restarts": 6}
    assert settled.settings == Settings(**expected, tee=True, num_machines="8")


def test_what_a_launcher_settled_reaches_the_script_through_the_environment() -> None:
    flags = flag_layer({"wrap_layers": "Block, Head", "cpu": False, "num_processes": "2"})
    settled = settle([flags, environment_layer({"ACCEL_CPU": "1", "ACCEL_TIMEOUT": "2.5"})])
    variables = as_environment(settled)
    assert variables["ACCEL_LAUNCH_FLAGS"] == "cpu,wrap_layers"
    options = options_from({"ACCEL_CPU": "1", **variables}, {})
    assert (options.cpu, options.wrap_layers, options.timeout) == (False, ("Block", "Head"), 2.5)


def test_a_flag_that_the_script_overrides_is_reported_in_one_line(caplog: pytest.LogCaptureFixture) -> None:
    environ = {"ACCEL_MIXED_PRECISION": "bf16", "ACCEL_LAUNCH_FLAGS": "mixed_precision,cpu"}
    with caplog.at_level(logging.WARNING):
        assert options_from(environ, {"mixed_precision": "fp16", "cpu": None}).mixed_precision == "fp16"
        assert options_from(environ, {"mixed_precision": "bf16"}).mixed_precision == "bf16"
    line = "--mixed-precision bf16 is not used: the script passes mixed_precision='fp16' to Accelerator"
    assert [record.getMessage() for record in caplog.records] == [line]


def test_a_variable_that_nothing_reads_is_named() -> None:
    environ = {"ACCEL_MIXED_PRECISON": "bf16", "ACCEL_CPU": "1", "ACCEL_CONFIG": "a.yaml", "PATH": "/bin"}
    (line,) = unread_variables(environ)
    assert line.startswith("ACCEL_MIXED_PRECISON in the environment is not read by anything; did you mean ACCEL_MIXED_")


def test_an_empty_variable_says_nothing() -> None:
    assert options_from({"ACCEL_MIXED_PRECISION": ""}, {}).mixed_precision == "no"


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("mixed_precison", "no", "f.yaml: unknown key 'mixed_precison'; did you mean mixed_precision?"),
        ("colour", "red", "f.yaml: unknown key 'colour'"),
        (
            "mixed_precision",
            "fp61",
            "f.yaml: mixed_precision is 'fp61', expected one of no, fp16, bf16, fp8, fp8-emulated; did you mean fp16?",
        ),
        ("num_processes", "two", "f.yaml: num_processes is 'two', expected a whole number"),
        ("num_processes", 0, "f.yaml: num_processes is 0, expected a whole number >= 1"),
        ("num_processes", 2.5, "f.yaml: num_processes is 2.5, expected a whole number"),
        ("gradient_accumulation_steps", -1, "f.yaml: gradient_accumulation_steps is -1, expected a whole number >= 1"),
        ("main_process_port", 70000, "f.yaml: main_process_port is 70000, expected a whole number <= 65535"),
        ("num_machines", "many", "f.yaml: num_machines is 'many', expected text such as 2 or 1:4"),
        ("zero_stage", 5, "f.yaml: zero_stage is 5, expected one of 0, 1, 2, 3"),
        ("cpu", "perhaps", "f.yaml: cpu is 'perhaps', expected true or false"),
    ],
)
def test_a_bad_value_is_one_line_that_names_it(key: str, value: object, message: str) -> None:
    with pytest.raises(ConfigError) as refused:
        settle([flag_layer({"cpu": True}), file_layer("f.yaml", {key: value})])
    assert str(refused.value) == message


def test_each_source_names_the_place_of_a_bad_value() -> None:
    for layer, place in [
        (script_layer({"mixed_precision": "x"}), "Accelerator(mixed_precision=...) is 'x'"),
        (flag_layer({"mixed_precision": "x"}), "--mixed-precision is 'x'"),
        (environment_layer({"ACCEL_MIXED_PRECISION": "x"}), "ACCEL_MIXED_PRECISION in the environment is 'x'"),
    ]:
        with pytest.raises(ConfigError) as refused:
            settle([layer])
        assert str(refused.value).startswith(place)


def test_yaml_spellings_mean_what_they_say() -> None:
    # An unquoted `no` is false to YAML, an unquoted 2 is a number, a list of devices is a list.
    values = {"mixed_precision": False, "num_machines": 2, "devices": [0, 2], "wrap_layers": ["A", "B"]}
    settings = settle([file_layer("f.yaml", values)]).settings
    assert (settings.mixed_precision, settings.num_machines, settings.devices) == ("no", "2", "0,2")
    assert settings.wrap_layers == ("A", "B")


def test_the_seed_of_a_launch_is_a_number_or_none() -> None:
    assert seed_from({"ACCEL_SEED": "12"}) == 12
    assert seed_from({"ACCEL_SEED": "none"}) is None
    assert isinstance(seed_from({}), int)
    with pytest.raises(ConfigError, match="ACCEL_SEED in the environment is '-1', expected a whole number, or none"):
        seed_from({"ACCEL_SEED": "-1"})
