"""Nothing of Accelerate's public API is absent without an answer; `accelerate_api.json` is the list of its names."""

import inspect
import json
import runpy
from contextlib import suppress
from importlib import import_module
from pathlib import Path

import accel_runtime
import pytest
from accel_runtime import Accelerator, utils
from accel_runtime.arguments import INSTEAD
from accel_runtime.cli.launch import command
from accel_runtime.errors import ConfigError
from accel_runtime.peer_config import REFUSED, SAME, WITHOUT_MEANING, WORDS
from accel_runtime.unsupported import ARGUMENTS, AT_CALL, MEMBERS, MODULES, NAMES, instead_of_flag

API = json.loads((Path(__file__).parent / "accelerate_api.json").read_text())
PLACES = [(module, name) for module, names in API["modules"].items() for name in names]
# What only groups keys of its own, which are read one by one.
SECTIONS = ("deepspeed_config", "dynamo_config", "fsdp_config", "distributed_type")


def face(module):
    return import_module(f"accel_runtime.{module}" if module else "accel_runtime")


@pytest.mark.parametrize("module", [module for module in API["modules"] if module != "utils.rich"])
def test_every_name_is_there_or_says_what_to_use(module):
    unanswered = []
    for name in API["modules"][module]:
        try:
            getattr(face(module), name)
        except ImportError as error:
            assert f"has no {name}: " in str(error)
        except AttributeError:
            unanswered.append(name)
    assert unanswered == []


def test_most_names_are_there():
    there = 0
    for module, name in PLACES:
        with suppress(ImportError):
            there += hasattr(face(module), name)
    assert there >= 490 and len(PLACES) == 708


def test_no_answer_is_about_a_name_that_is_there():
    for name in NAMES:
        # What libraries import ahead answers when it is called.
        with pytest.raises(NotImplementedError if name in AT_CALL else ImportError):
            getattr(utils, name)()
    for module in MODULES:
        assert not getattr(face(module), "__all__", [])


@pytest.mark.parametrize("kind", API["members"])
def test_every_attribute_is_there_or_says_what_to_use(kind):
    accelerator = Accelerator(cpu=True)
    owner = {
        "Accelerator": accelerator,
        "AcceleratorState": accelerator.state,
        "GradientState": accelerator.gradient_state,
        "PartialState": accel_runtime.PartialState(),
    }[kind]
    unanswered = []
    for name in API["members"][kind]:
        try:
            getattr(owner, name)
        except AttributeError as error:
            if not str(error).endswith(f": {MEMBERS.get(name)}"):
                unanswered.append(name)
    assert unanswered == []


def test_an_attribute_that_is_not_here_says_what_to_use():
    with pytest.raises(AttributeError, match="'Accelerator' object has no attribute 'tensor_parallel_rank': tensor"):
        _ = Accelerator(cpu=True).tensor_parallel_rank


@pytest.mark.parametrize("kind", API["arguments"])
def test_every_argument_is_taken_or_refused_by_name(kind):
    taken = inspect.signature(getattr(utils, kind, None) or getattr(accel_runtime, kind)).parameters
    answered = INSTEAD if kind == "Accelerator" else {}
    assert [name for name in API["arguments"][kind] if name not in taken and name not in answered] == []


@pytest.mark.parametrize(("kind", "name"), [(kind, name) for kind, texts in ARGUMENTS.items() for name in texts])
def test_an_argument_without_effect_is_refused(kind, name):
    with pytest.raises(ConfigError, match=rf"{kind}\({name}=\.\.\.\): "):
        getattr(utils, kind)(**{name: True})


def test_every_flag_of_the_launcher_is_taken_or_answered():
    known = {flag.replace("_", "-") for one in command.params for flag in (*one.opts, *one.secondary_opts)}
    flags = [flag.replace("_", "-") for flag in API["flags"] if flag != "--help"]
    assert [flag for flag in flags if flag not in known and not instead_of_flag(flag)] == []


def test_every_key_of_a_config_file_is_read_or_answered():
    known = {*SAME, *WORDS, *REFUSED, *WITHOUT_MEANING, *SECTIONS}
    assert [key for key in API["yaml_keys"] if key not in known] == []


@pytest.mark.parametrize(
    ("maker", "name"), [("make_differences", "differences"), ("make_examples", "accelerate-examples")]
)
def test_a_page_is_made_from_its_table(maker, name):
    docs = Path(__file__).parent.parent.parent / "docs"
    page = runpy.run_path(str(docs / f"{maker}.py"))["page"]
    assert (docs / "runtime" / f"{name}.md").read_text() == page(), f"{name}.md is out of date; run: make docs"
