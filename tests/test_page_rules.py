# SPDX-License-Identifier: GPL-2.0-or-later
"""What holds of every page that kdelta can write: its policy, its structure, and its colours."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from kdelta.rendering import formats

ROOM = Path(formats.__file__).parent
PAGES = sorted(path.name for path in ROOM.glob("*.html"))
STYLES = sorted(path.name for path in ROOM.glob("*.css"))
READABLE = 4.5  # WCAG 2.2, 1.4.3: text against what is behind it
TEXT = ("fg", "dim", "bad", "good", "warn", "link", "accent", "hit")
BEHIND = ("bg", "head", "chg", "tgt", "del", "add")
FRAMES = ("s0", "u1", "u2", "u3", "d1", "d2", "d3")


def test_there_are_pages() -> None:
    assert {"site.html", "flame.html", "check.html"} <= {*PAGES}
    asked = {name for path in ROOM.glob("*.py") for name in asked_for(path.read_text())}
    assert asked == {*PAGES}  # what is no template here is no page


def asked_for(source: str) -> list[str]:
    return re.findall(r'\btemplate\("([\w.]+)"\)', source)


@pytest.mark.parametrize("name", PAGES)
def test_the_policy_forbids_what_is_not_named(name: str) -> None:
    text = (ROOM / name).read_text()
    (policy,) = re.findall(r'http-equiv="Content-Security-Policy" content="([^"]*)"', text)
    if policy == "{{ policy }}":
        source = (ROOM / name).with_suffix(".py").read_text()
        policy = "".join(re.findall(r'f?"([^"]*)"', source[source.index("policy=(") :][:600]))
        policy = policy[policy.index("default-src") :]
    assert policy.startswith("default-src 'none';")
    assert "base-uri 'none'" in policy
    assert "form-action 'none'" in policy
    assert not re.search(r"unsafe|\*|https?:|blob:", policy)
    head = text[: text.index("Content-Security-Policy")]
    assert not re.search(r"<(style|script|link)", head)  # it holds for what comes after it


@pytest.mark.parametrize("name", PAGES)
def test_style_and_script_are_our_files(name: str) -> None:
    text = (ROOM / name).read_text()
    assert not re.search(r"\s(style|on\w+)=", text)
    assert "srcdoc" not in text
    assert not re.search(r"<(iframe|object|embed|form|base)\b", text)
    for inside in re.findall(r"<style>(.*?)</style>", text, re.DOTALL):
        assert inside == "{{ style }}"
    for start, inside in re.findall(r"<script([^>]*)>(.*?)</script>", text, re.DOTALL):
        assert inside in ("{{ script }}", "") or 'type="application/json"' in start
    for target in re.findall(r'(?:src|href)="([^"]*)"', text):
        assert not re.match(r"\w+:(?!,)|//", target.replace("data:", "")), target


@pytest.mark.parametrize("name", PAGES)
def test_each_can_be_found_one_s_way_in(name: str) -> None:
    text = (ROOM / name).read_text()
    assert '<html lang="en">' in text
    assert '<meta name="viewport" content="width=device-width, initial-scale=1">' in text
    assert text.count("<h1") == 1
    assert re.search(r"<title>.+</title>", text)
    for box in re.findall(r"<(?:input|select)[^>]*\bid=\"(\w+)\"", text):
        assert f'<label for="{box}">' in text
    for picture in re.findall(r"<img[^>]*>", text):
        assert "alt=" in picture
    for drawing in re.findall(r"<svg[^>]*>", text):
        assert re.search(r'aria-(label|hidden)=|class="f"', drawing), drawing


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("name", STYLES)
def test_text_can_be_read_in_light_and_dark(name: str, dark: bool) -> None:  # noqa: FBT001
    known = colours(name, dark=dark)
    pairs = [(text, behind) for text in TEXT for behind in BEHIND]
    pairs += [("ink", frame) for frame in FRAMES]
    told = {
        f"{text} on {behind}": round(contrast(known[text], known[behind]), 2)
        for text, behind in pairs
        if text in known and behind in known
    }
    assert not {pair: value for pair, value in told.items() if value < READABLE}


def test_what_contrast_is() -> None:
    assert contrast("#ffffff", "#000000") == pytest.approx(21)
    assert contrast("#777777", "#ffffff") == pytest.approx(4.48, abs=0.01)
    assert colours("site.css", dark=True)["bg"] != colours("site.css", dark=False)["bg"]


def colours(name: str, *, dark: bool) -> dict[str, str]:
    """The palette of a style, by name: what :root says, and what dark screens change of it."""
    text = formats.asset(name)
    found: dict[str, str] = {}
    for start, block in re.findall(r"(@media[^{]*dark[^{]*\{\s*)?:root\s*\{([^}]*)\}", text):
        if dark or not start:
            found |= dict(re.findall(r"--(\w+):\s*(#[0-9a-f]{3,6})\b", block))
    return found


def contrast(one: str, other: str) -> float:
    """WCAG 2.2: of relative luminances."""
    light, dark = sorted((luminance(one), luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def luminance(colour: str) -> float:
    digits = colour[1:] if len(colour) == 7 else "".join(2 * digit for digit in colour[1:])
    parts = [int(digits[at : at + 2], 16) / 255 for at in (0, 2, 4)]
    linear = [
        part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts
    ]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
