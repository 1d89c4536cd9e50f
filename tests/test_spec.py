# SPDX-License-Identifier: GPL-2.0-or-later
"""kdelta.study.spec: what is accepted, what is refused and in which words."""

from __future__ import annotations

import hashlib
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kdelta import workload
from kdelta.data import directory
from kdelta.errors import SpecError
from kdelta.machine.axes import MachineSettings
from kdelta.sample import Instrument
from kdelta.study import spec

HEAD = 'name = "a"\ntitle = "t"\n'
SCENARIOS = 'scenarios = ["mprotect:x"]\n'
KERNELS = 'kernels = ["6.1", "6.12"]\n'


def parse(text: str) -> spec.Study:
    return spec.from_text(text, "study.toml")


def refused(text: str) -> str:
    with pytest.raises(SpecError) as caught:
        parse(text)
    assert caught.value.exit_code == 2
    return caught.value.sentence()


def test_a_short_study_gets_the_documented_defaults() -> None:
    study = parse(HEAD + SCENARIOS + KERNELS)
    assert study.instrument is Instrument.EXACT
    assert study.scenarios == ("mprotect:x",)
    assert study.kernels == ("6.1", "6.12")
    machine = study.machine
    assert (machine.arch, machine.flavour, machine.cpus) == ("amd64", "cloud", 1)
    assert (machine.memory_mib, machine.cpu_model, machine.cmdline) == (1024, "everyday", "")
    plan = study.plan
    assert (plan.rounds, plan.seed, plan.fresh_boot) == (1, None, False)
    assert (plan.max_attempts, plan.timeout_s) == (2, 120)
    assert study.thresholds.step_percent == 1.0


def test_a_guest_may_be_told_not_to_be_locked_down() -> None:
    text = HEAD + SCENARIOS + KERNELS + '[machine]\ncmdline = "lockdown=none"\n'
    assert parse(text).machine.cmdline == "lockdown=none"


def test_every_key_is_read() -> None:
    study = parse(
        HEAD
        + SCENARIOS
        + KERNELS
        + 'question = "why?\\nwhere?"\ninstrument = "exact"\n'
        + '[machine]\narch = "arm64"\nflavour = "generic"\ncpus = 2\nmemory_mib = 2048\n'
        + 'cpu_model = "qemu64,+avx2"\ncmdline = "mitigations=off"\n'
        + "[plan]\nrounds = 3\nseed = 7\nfresh_boot = true\nmax_attempts = 5\ntimeout_s = 60\n"
        + "[thresholds]\nstep_percent = 0.5\n"
    )
    assert study.question == "why?\nwhere?"
    assert study.machine == MachineSettings(
        arch="arm64", flavour="generic", cpus=2, memory_mib=2048, cpu_model="qemu64,+avx2",
        cmdline="mitigations=off",
    )  # fmt: skip
    assert study.plan == spec.PlanSettings(
        rounds=3, seed=7, fresh_boot=True, max_attempts=5, timeout_s=60
    )
    assert study.thresholds == spec.Thresholds(step_percent=0.5)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ('[machine]\ncpus = "two"',
         'study.toml: machine.cpus: expected an integer from 1 to 64, got "two"'),
        ("[time]\nalpha = 0.0", "time.alpha: expected a number from 1e-09 below 0.5, got 0.0"),
        ("[machine]\ncpus = true", "machine.cpus: expected an integer from 1 to 64, got true"),
        ("[machine]\ncpus = 1.0", "machine.cpus: expected an integer from 1 to 64, got 1.0"),
        ("[machine]\ncpus = [1]", "machine.cpus: expected an integer from 1 to 64, got an array"),
        ("[machine]\nmemory_mib = 255", "memory_mib: expected an integer from 256 to 65536"),
        (f"[machine]\ncpus = 0x{'f' * 5000}", "got a number of 20000 bits"),
        ('[machine]\narch = "amd64 -net"', "machine.arch: expected one word"),
        ('[machine]\ncmdline = "a\\nb"', "machine.cmdline: expected printable ASCII"),
        ('[machine]\ncmdline = "quiet lockdown=integrity"',
         "machine.cmdline: a guest of kdelta's needs its own lockdown="),
        ('[machine]\ncmdline = "audit=1 \\"rdinit=/x\\""', "needs its own rdinit="),
        ('[matrix]\ncmdline = ["", "lockdown=integrity"]',
         "matrix.cmdline: a guest of kdelta's needs its own lockdown="),
        ("[plan]\nrounds = 0", "plan.rounds: expected an integer from 1 to 100, got 0"),
        ("[plan]\nrounds = 1979-05-27", "got 1979-05-27"),
        ("[plan]\nseed = -1", "plan.seed: expected an integer from 0 to 9223372036854775807"),
        ("[plan]\nseed = 9223372036854775808", "got 9223372036854775808"),
        ("[plan]\nfresh_boot = 1", "plan.fresh_boot: expected true or false, got 1"),
        ("[thresholds]\nstep_percent = nan", "expected a number from 0 to 100, got nan"),
        ("thresholds = 1", "study.toml: thresholds: expected a table, got 1"),
        ('question = "\\u001b[2J"', "question: expected printable text"),
        ('instrument = "profile"',
         'instrument: expected "exact" or "time" or "trace", got "profile"'),
        ("[machine]\ncpu = 2", 'study.toml: machine: unknown key "cpu"; did you mean cpus?'),
        ("kernel = 2", 'study.toml: unknown key "kernel"; did you mean kernels?'),
        ("cpus = 2", 'study.toml: unknown key "cpus"; did you mean machine.cpus?'),
        ('[matrix]\nname = ["a"]', 'unknown key "name"; did you mean name, above all tables?'),
        ("[threshold]\n", 'unknown key "threshold"; did you mean thresholds?'),
        ("zzz = 2", 'unknown key "zzz"; known keys: name, title, question, instrument'),
        ('"\\u001b[2J" = 2', 'unknown key "\\x1b[2J"'),
    ],
)  # fmt: skip
def test_wrong_values_and_keys_are_named_with_what_may_be_meant(text: str, sentence: str) -> None:
    assert sentence in refused(HEAD + SCENARIOS + KERNELS + text)


@pytest.mark.parametrize("path", ["$x", "$.plan", "$.plan.rounds", "$.kernels[0]", "$[7]"])
def test_a_key_that_reads_like_the_words_of_a_refusal_is_refused(path: str) -> None:
    sentence = refused(f'"a` - at `{path}" = 1\n{HEAD}{SCENARIOS}{KERNELS}[plan]\nrounds = 2\n')
    assert "not a study" in sentence or "unknown key" in sentence


@pytest.mark.parametrize("missing", ["name", "title", "scenarios", "kernels"])
def test_a_missing_key_is_named(missing: str) -> None:
    lines = (HEAD + SCENARIOS + KERNELS).splitlines()
    text = "\n".join(line for line in lines if not line.startswith(missing))
    assert refused(text) == f"study.toml: the key {missing} is missing; add it"


@pytest.mark.parametrize(
    ("kernels", "sentence"),
    [
        ("[6.1, 6.2]", 'kernels[0]: expected a kernel reference in quotes, such as "6.17", got 6'),
        ('"6.1"', 'kernels: expected an array of 1 to 64 strings, got "6.1"'),
        ("[]", "kernels: expected an array of 1 to 64 strings, got 0 of them"),
        (str([str(at) for at in range(65)]), "got 65 of them"),
        ('["6.1", "6.2", "6.1"]', 'kernels[2]: "6.1" stands twice, first as kernels[0]'),
        ('["6.1"]', "kernels: one kernel compares nothing"),
        ('["6.1", " "]', "kernels[1]: expected a kernel reference"),
    ],
)
def test_kernels(kernels: str, sentence: str) -> None:
    assert sentence in refused(HEAD + SCENARIOS + f"kernels = {kernels}")


def test_one_kernel_is_allowed_when_asked_for() -> None:
    text = HEAD + SCENARIOS + 'kernels = ["6.1"]\n[plan]\nsingle_kernel = true'
    assert parse(text).kernels == ("6.1",)


@pytest.mark.parametrize("scenario", ["mprotect", "mprotect:", ":x", "a:b:c", "../a:b", ""])
def test_a_scenario_is_workload_and_scenario(scenario: str) -> None:
    sentence = refused(HEAD + KERNELS + f'scenarios = ["{scenario}"]')
    assert (
        f'scenarios[0]: expected "workload:scenario" or "./FILE.c:scenario", got "{scenario}"'
        in sentence
    )
    assert workload.LIST_SCENARIOS in sentence


def test_a_scenario_twice_is_refused() -> None:
    assert '"a:b" stands twice' in refused(HEAD + KERNELS + 'scenarios = ["a:b", "c:d", "a:b"]')


def test_too_many_trials_are_refused() -> None:
    kernels = [f"6.{at}" for at in range(64)]
    scenarios = [f"w:{at}" for at in range(64)]
    text = f"{HEAD}kernels = {kernels}\nscenarios = {scenarios}\n"
    assert len(parse(text).kernels) == 64
    assert "409600 trials, more than 10000" in refused(text + "[plan]\nrounds = 100")


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (HEAD + "kernels == 1\n", "(at line 3, column 10)"),
        ("a = " + "[" * 20000, "study.toml: not valid TOML: it is nested too deeply"),
        ("a = " + "9" * 5000, "study.toml: not valid TOML: a number has too many digits"),
        (".".join("a" * 30000) + " = 1", "study.toml: not valid TOML: a key has too many parts"),
        ('x = {"a"' + " .'b'" * 40 + " = 1}", "not valid TOML: a key has too many parts"),
    ],
)
def test_broken_toml_names_the_line(text: str, sentence: str) -> None:
    assert sentence in refused(text)


def test_unreadable_files(tmp_path: Path) -> None:
    path = tmp_path / "study.toml"
    with pytest.raises(SpecError, match=r"study.toml: the study cannot be read: No such file"):
        spec.load(path)
    with pytest.raises(SpecError, match="cannot be read: it is a folder"):
        spec.load(tmp_path)
    path.write_bytes(b'name = "\xff"')
    with pytest.raises(SpecError, match=r"study.toml: not UTF-8 at byte 8"):
        spec.load(path)
    path.write_bytes(b"#" * (spec.MAX_BYTES + 1))
    with pytest.raises(SpecError, match="it has more than 65536 bytes"):
        spec.load(path)
    path.write_text(HEAD + SCENARIOS + KERNELS)
    assert spec.load(path) == parse(HEAD + SCENARIOS + KERNELS)


def test_every_shipped_study_loads_and_is_named_as_its_file() -> None:
    for path in directory("studies").glob("*.toml"):
        assert spec.load(path).name == path.stem


def test_the_reference_documents_every_key() -> None:
    text = (directory("studies").parent / "docs" / "study.md").read_text()
    for struct in (spec.Study, MachineSettings, spec.PlanSettings, spec.Thresholds):
        for field in msgspec.structs.fields(struct):
            assert f"`{field.name}`" in text, f"docs/study.md lacks {field.name}"


def test_arguments_make_a_study() -> None:
    study = spec.from_arguments(
        ["mprotect:shared_dirty"], ["6.12", "6.17"], rounds=3, seed=None, cpus=2, title="x"
    )
    assert study.name == "mprotect-shared-dirty"
    assert (study.title, study.plan.rounds, study.machine.cpus) == ("x", 3, 2)
    assert study.plan.seed is None
    assert not study.plan.single_kernel
    assert spec.from_arguments(["a:b"], ["6.12"]).kernels == ("6.12",)


@pytest.mark.parametrize(
    ("scenarios", "kernels", "settings", "sentence"),
    [
        (["mprotect"], ["6.1", "6.2"], {}, 'scenarios[0]: expected "workload:scenario"'),
        ([], ["6.1", "6.2"], {}, "command line: scenarios: expected an array"),
        (["a:b"], [], {}, "command line: kernels: expected an array"),
        (["a:b"], ["6.1", "6.2"], {"rounds": 0}, "command line: plan.rounds: expected"),
        (["a:b"], ["\x1b[2J", "6.2"], {}, "command line: kernels[0]: expected a kernel"),
    ],
)
def test_wrong_arguments(
    scenarios: list[str], kernels: list[str], settings: dict[str, int], sentence: str
) -> None:
    with pytest.raises(SpecError) as caught:
        spec.from_arguments(scenarios, kernels, **settings)
    assert sentence in caught.value.sentence()


def test_settings_replace_keys_and_are_checked() -> None:
    study = parse(HEAD + SCENARIOS + KERNELS)
    changed = spec.with_settings(study, rounds=4, seed=9, kernels=("6.17",), cpus=None)
    assert (changed.plan.rounds, changed.plan.seed, changed.kernels) == (4, 9, ("6.17",))
    assert changed.machine == study.machine
    with pytest.raises(SpecError, match=r"command line: machine.cpus"):
        spec.with_settings(study, cpus=0)


def test_the_digest_follows_the_content_only() -> None:
    study = parse(HEAD + SCENARIOS + KERNELS)
    reordered = parse(KERNELS + SCENARIOS + HEAD + "# a remark\n[plan]\nrounds = 1\n")
    assert spec.digest(study) == spec.digest(reordered)
    assert spec.digest(study) != spec.digest(spec.with_settings(study, rounds=2))
    # A change of this value leaves older unfinished runs without a way to be resumed.
    canonical = '{"kernels":["6.1","6.12"],"name":"a","scenarios":["mprotect:x"],"title":"t"}'
    assert spec.digest(study) == hashlib.sha256(canonical.encode()).hexdigest()


printable = st.text(st.characters(exclude_categories=("C", "Z")), min_size=1, max_size=30)
words = st.from_regex(r"\A[A-Za-z0-9][A-Za-z0-9_.-]{0,20}\Z")
studies = st.builds(
    spec.from_arguments,
    scenarios=st.lists(st.builds("{}:{}".format, words, words), min_size=1, max_size=5,
                       unique=True),
    kernels=st.lists(printable, min_size=1, max_size=6, unique=True), title=printable,
    question=st.text(st.sampled_from('ab"\\\n#é€\U0001f600\'"""'), max_size=50),
    cpus=st.integers(1, 64), memory_mib=st.integers(256, 65536),
    cmdline=st.text(st.characters(min_codepoint=0x20, max_codepoint=0x7E), max_size=50),
    rounds=st.integers(1, 100), seed=st.none() | st.integers(0, 2**63 - 1),
    fresh_boot=st.booleans(), step_percent=st.floats(0, 100),
)  # fmt: skip


@given(studies)
def test_toml_round_trip(study: spec.Study) -> None:
    text = spec.to_toml(study)
    assert spec.from_text(text, "") == study
    assert spec.digest(spec.from_text(text, "")) == spec.digest(study)


junk = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.dates(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
keys = st.sampled_from([*spec.Study.__struct_fields__, "cpus", ""])


@given(st.dictionaries(keys, junk))
def test_no_document_raises_anything_but_spec_error(data: dict[str, object]) -> None:
    with pytest.raises(SpecError):
        spec._study(data, "x")


@given(st.text())
def test_no_text_raises_anything_but_spec_error(text: str) -> None:
    with pytest.raises(SpecError) as caught:
        spec.from_text(text, "x")
    assert caught.value.sentence().startswith("x: ")


def matrix_study(**tables: object) -> spec.Study:
    text = 'name = "m"\ntitle = "m"\nscenarios = ["a:b"]\nkernels = ["6.12", "6.17"]\n'
    return spec.from_text(
        text + "\n".join(f"[{name}]\n{body}" for name, body in tables.items()), "m"
    )


def test_a_matrix_is_all_combinations_the_last_axis_fastest() -> None:
    study = matrix_study(matrix='cpus = [1, 2]\npreempt = ["none", "full"]', machine="nodes = 2")
    found = spec.points(study)
    assert [point.axes for point in found] == [
        {"cpus": "1", "preempt": "none"}, {"cpus": "1", "preempt": "full"},
        {"cpus": "2", "preempt": "none"}, {"cpus": "2", "preempt": "full"},
    ]  # fmt: skip
    assert found[3].machine.cpus == 2
    assert found[3].machine.preempt == "full"
    assert found[3].machine.nodes == 2
    assert spec.from_text(spec.to_toml(study), "again") == study


def test_a_study_without_a_matrix_has_one_point() -> None:
    study = matrix_study()
    assert [point.axes for point in spec.points(study)] == [{}]
    assert spec.points(study)[0].machine == study.machine


@pytest.mark.parametrize(
    ("matrix", "words"),
    [
        ("cpus = [0]", r"matrix\.cpus\[0\]: expected an integer from 1 to 64"),
        ('preempt = ["rt"]', r"matrix\.preempt\[0\]: expected"),
        ("cpus = [2, 2]", "stands twice"),
        ("arch = ['arm64']", "unknown key"),
        ('mthp = ["64kB"]', r"matrix\.mthp\[0\]: expected sizes"),
        ("cpus = 2", r"expected an array of 0 to 16 integers, got 2"),
    ],
)
def test_a_wrong_matrix_is_refused_with_its_key(matrix: str, words: str) -> None:
    with pytest.raises(SpecError, match=words):
        matrix_study(matrix=matrix)


def test_this_host_has_no_matrix() -> None:
    text = (
        'name = "m"\ntitle = "m"\ninstrument = "time"\nscenarios = ["a:b"]\nkernels = ["host"]\n'
        "[matrix]\ncpus = [1, 2]\n"
    )
    with pytest.raises(SpecError, match="this host is one machine"):
        spec.from_text(text, "m")


def test_figures_are_kept() -> None:
    text = (
        'name = "m"\ntitle = "m"\nscenarios = ["a:b"]\nkernels = ["6.12", "6.17"]\n'
        '[[figures]]\nname = "clear calls"\nfunctions = ["clear_page*"]\ndivide = 4096\n'
    )
    study = spec.from_text(text, "m")
    assert study.figures[0].count == "calls"
    assert spec.from_text(spec.to_toml(study), "again") == study
    with pytest.raises(SpecError, match=r"figures\[0\]: unknown key"):
        spec.from_text(text + "color = 1\n", "m")
