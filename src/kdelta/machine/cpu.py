# SPDX-License-Identifier: GPL-2.0-or-later
"""CPUs by name: a fixed list of features each, so that a count means the same with every QEMU.

QEMU's "max" is whatever that QEMU can emulate, and a kernel patches its code by what it finds:
with FSRM it copies in line, with MOPS (arm64) it copies by one instruction.  A preset lists every
feature, QEMU has to refuse what it cannot give (`enforce`), and the guest says what it got.
"""

from __future__ import annotations

from dataclasses import dataclass

from kdelta.errors import SpecError

EVERYDAY = "everyday"

_COMMON = (
    "3dnowprefetch", "abm", "adx", "aes", "arat", "avx", "avx2", "bmi1", "bmi2", "clflushopt",
    "clwb", "cx16", "erms", "f16c", "fma", "fsgsbase", "fsrm", "lahf-lm", "la57", "movbe",
    "pclmulqdq", "pdpe1gb", "pku", "popcnt", "rdpid", "rdrand", "rdseed", "rdtscp", "sha-ni",
    "smap", "smep", "sse4.1", "sse4.2", "ssse3", "umip", "vaes", "wbnoinvd", "x2apic",
    "xgetbv1", "xsave", "xsaveopt",
)  # fmt: skip
# Features of these models that QEMU's emulator does not have.  Without them a kernel protects
# itself as on older CPUs: docs/comparable.md says what a real one has beside.
_ICELAKE_LACKS = (
    "pcid", "tsc-deadline", "hle", "invpcid", "rtm", "avx512f", "avx512dq", "avx512cd",
    "avx512bw", "avx512vl", "avx512vbmi", "avx512vbmi2", "gfni", "vpclmulqdq", "avx512vnni",
    "avx512bitalg", "avx512-vpopcntdq", "spec-ctrl", "ssbd", "xsavec",
)  # fmt: skip
_ZEN_LACKS = (
    "pcid", "invpcid", "fxsr-opt", "misalignsse", "osvw", "topoext", "perfctr-core", "clzero",
    "ibpb", "ibrs", "amd-stibp", "amd-ssbd", "nrip-save", "xsavec", "xsaves",
)  # fmt: skip

_RVA22 = (
    "rv64imafdcb_zic64b_zicbom_zicbop_zicboz_ziccamoa_ziccif_zicclsm_ziccrse_zicntr_zicsr_zifencei"
    "_zihintpause_zihpm_zmmul_za64rs_zaamo_zalrsc_zfhmin_zca_zcd_zba_zbb_zbs_zkt_shcounterenw"
    "_shgatpa_shtvala_shvsatpa_shvstvala_shvstvecd_ssccptr_sscounterenw_sstvala_sstvecd_ssu64xl"
    "_svade_svinval_svpbmt"
)
_RVA23 = (
    "rv64imafdcbvh_zic64b_zicbom_zicbop_zicboz_ziccamoa_ziccif_zicclsm_ziccrse_zicond_zicntr"
    "_zicsr_zifencei_zihintntl_zihintpause_zihpm_zimop_zmmul_za64rs_zaamo_zalrsc_zawrs_zfa"
    "_zfhmin_zca_zcb_zcd_zcmop_zba_zbb_zbs_zkt_zvbb_zve32f_zve32x_zve64f_zve64d_zve64x_zvfhmin"
    "_zvkb_zvkt_shcounterenw_sha_shgatpa_shtvala_shvsatpa_shvstvala_shvstvecd_smnpm_smstateen"
    "_ssccptr_sscofpmf_sscounterenw_ssnpm_ssstateen_sstc_sstvala_sstvecd_ssu64xl_supm_svade"
    "_svinval_svnapot_svpbmt"
)


@dataclass(frozen=True, slots=True)
class Preset:
    """A CPU.  arch: Debian's word; seen: what a guest says of it (guest/cpu.h), "" for no words."""

    name: str
    arch: str
    qemu: str
    seen: str


def _switched(model: str, *, on: tuple[str, ...] = (), off: tuple[str, ...] = ()) -> str:
    switches = [f"{name}=on" for name in on] + [f"{name}=off" for name in off]
    return ",".join([model, "enforce=on", *switches])


_PRESETS = (
    # FSRM and ERMS only together: memmove() of 6.1 takes one for the other, and is wrong otherwise.
    # The signature is the one that QEMU gave for many years: kernels believe that its REP is fast,
    # as for all CPUs of today, and know no flaw of it.
    Preset(
        *(EVERYDAY, "amd64", _switched("qemu64-v1", on=_COMMON)),
        "AuthenticAMD 60fb1 f6f83203 78bfbfd 219c03a9 41020c 10 0 5 125 2d93fbfd 200",
    ),
    Preset(
        *("icelake", "amd64", _switched("Icelake-Server-v1", off=_ICELAKE_LACKS)),
        "GenuineIntel 80660 f6f83203 78bfbfd 19c03a9 1020c 0 0 5 121 2c100800 200",
    ),
    Preset(
        *("zen3", "amd64", _switched("EPYC-Milan-v1", off=_ZEN_LACKS)),
        "AuthenticAMD a00f11 f6d8320b 78bfbfd 219c03a9 40000c 10 0 5 175 2dd3fbfd 204",
    ),
    Preset(EVERYDAY, "arm64", "neoverse-n1", "midr 414fd0c1"),
    Preset("neoverse-n1", "arm64", "neoverse-n1", "midr 414fd0c1"),
    Preset("neoverse-v1", "arm64", "neoverse-v1", "midr 411fd402"),
    # Profiles of RISC-V International, with the extensions that they demand and no other.
    Preset(EVERYDAY, "riscv64", "rva22s64", f"{_RVA22} riscv,sv39"),
    Preset("rva22s64", "riscv64", "rva22s64", f"{_RVA22} riscv,sv39"),
    Preset("rva23s64", "riscv64", "rva23s64", f"{_RVA23} riscv,sv39"),
)


def of_qemu(name: str, arch: str) -> str:
    """QEMU's words for a preset, or its own model.  Raises SpecError for one not restored."""
    if (arch, name.partition(",")[0]) == ("riscv64", "max"):
        cause = "QEMU 10.0 does not restore saved guests of riscv64 with its CPU max"
        action = "take rva23s64, or rva22s64 with features: rva22s64,zacas=on"
        raise SpecError(cause, action=action)
    chosen = preset(name, arch)
    return chosen.qemu if chosen else name


def strict(name: str, arch: str) -> str:
    """QEMU's words for a CPU that it gives with every feature, or refuses."""
    words = of_qemu(name, arch)
    return f"{words},enforce=on" if arch == "amd64" else words


def told(name: str, arch: str) -> str:
    """A CPU for who does not know the name of a preset: the model of QEMU that it is made of."""
    known = preset(name, arch)
    if known is None:
        return name
    model, _, features = known.qemu.partition(",enforce=on")
    switched = f", {features.count('=')} features set" if features else ""
    return f"{name} (QEMU's {model}{switched})"


def names(arch: str) -> tuple[str, ...]:
    """The presets of an architecture."""
    return tuple(one.name for one in _PRESETS if one.arch == arch)


def preset(name: str, arch: str) -> Preset | None:
    """The preset of that name; None when the name is one of QEMU's own ("max", "qemu64,+avx2")."""
    return next((one for one in _PRESETS if (one.name, one.arch) == (name, arch)), None)
