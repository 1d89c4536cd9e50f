# SPDX-License-Identifier: GPL-2.0-or-later
"""Which QEMUs lie on this machine, and which plugin interface each of them really offers."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from kdelta import process
from kdelta.arch import Arch
from kdelta.errors import InfraError
from kdelta.guests import qemu_archive

_TIMEOUT_S = 10.0
_VERSION = re.compile(r"version (\d+(?:\.\d+)+)")
_REFUSAL = re.compile(r"this QEMU supports only up to version (\d+)")

# A plugin from the future: QEMU refuses it and names the newest interface it has.
_FUTURE_PLUGIN = """\
int qemu_plugin_version = 1000000;
int qemu_plugin_install(void) { return 0; }
"""

# Newest first: the symbol that appeared with an interface (QEMU's plugins/qemu-plugins.symbols).
# API 3 (QEMU 9.1) changed a signature and added no symbol, so it reads as 2 here.
_SYMBOL_OF_API = (
    ("qemu_plugin_read_memory_vaddr", 4),
    ("qemu_plugin_scoreboard_new", 2),
    ("qemu_plugin_register_vcpu_tb_trans_cb", 1),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """A qemu-system program; environment and arguments: what a fetched one needs to start."""

    path: Path
    environment: dict[str, str] = field(default_factory=dict)
    arguments: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Emulator:
    """What examining a program showed.

    version:    "10.0.2", empty when it does not start
    plugin_api: newest TCG plugin interface it accepts; None when it takes no plugins
    proof:      how plugin_api is known ("asked", "symbols"), or why it is None
    """

    program: Program
    version: str
    plugin_api: int | None
    proof: str


def find(target: Arch) -> tuple[Program, ...]:
    """Programs for guests of an architecture: the one on PATH, then those in the cache."""
    on_path = process.which(target.qemu)
    fetched = (
        Program(path=tree.program, environment=tree.environment, arguments=tree.arguments)
        for tree in qemu_archive.installed()
        if tree.guest_arch == target.debian
    )
    return (*((Program(path=on_path),) if on_path else ()), *fetched)


def examine(programs: Sequence[Program]) -> tuple[Emulator, ...]:
    """Start every program to learn its version and plugin interface; never raises for one."""
    with tempfile.TemporaryDirectory(prefix="kdelta-doctor-") as scratch:
        plugin = _future_plugin(Path(scratch)) if programs else None
        return tuple(_examine_one(program, plugin) for program in programs)


def _examine_one(program: Program, plugin: Path | None) -> Emulator:
    argv = [str(program.path), "--version"]
    try:
        banner = process.run(argv, timeout=_TIMEOUT_S, env=program.environment)
    except InfraError as error:
        return Emulator(program=program, version="", plugin_api=None, proof=error.cause)
    match = _VERSION.search(banner.stdout)
    if not match:
        return Emulator(program=program, version="", plugin_api=None, proof="is not QEMU")
    api, proof = _asked_api(program, plugin) if plugin else (None, "")
    if api is None:
        api, proof = _api_of_symbols(program.path)
    return Emulator(program=program, version=match[1], plugin_api=api, proof=proof)


def _future_plugin(scratch: Path) -> Path | None:
    source, library = scratch / "future.c", scratch / "future.so"
    source.write_text(_FUTURE_PLUGIN)
    argv = ["gcc", "-shared", "-fPIC", "-o", str(library), str(source)]
    try:
        process.run(argv, timeout=_TIMEOUT_S)
    except InfraError:
        return None
    return library


def _asked_api(program: Program, plugin: Path) -> tuple[int | None, str]:
    argv = [str(program.path), *program.arguments]
    argv += ["-machine", "none", "-display", "none", "-plugin", str(plugin)]
    try:
        answer = process.run(argv, timeout=_TIMEOUT_S, check=False, env=program.environment)
    except InfraError as error:
        return None, error.cause
    match = _REFUSAL.search(answer.stderr)
    return (int(match[1]), "asked") if match else (None, answer.last_words)


def _api_of_symbols(program: Path) -> tuple[int | None, str]:
    from elftools.common.exceptions import ELFError
    from elftools.elf.elffile import ELFFile
    from elftools.elf.sections import SymbolTableSection

    try:
        with program.open("rb") as stream:
            table = ELFFile(stream).get_section_by_name(".dynsym")
            if not isinstance(table, SymbolTableSection):
                return None, "exports no symbols"
            names = {
                symbol.name for symbol in table.iter_symbols() if symbol["st_shndx"] != "SHN_UNDEF"
            }
    except (OSError, ELFError) as error:
        return None, f"cannot be read: {error}"
    for name, api in _SYMBOL_OF_API:
        if name in names:
            return api, "symbols"
    return None, "built without plugins"
