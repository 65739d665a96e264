"""workbench.toml and ablation.toml, checked to the end: the file and key, never a traceback."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from answers import Capsys, Patch, error_of, refused
from property_cases import examples
from workbench.cli.main import main
from workspaces import GOOD, ROOT, make, rewrite

CONFIG = (ROOT / "workbench.toml").read_text().replace('"attention"', '"scale"')
LADDER = Path(__file__).with_name("ablation.toml").read_text()


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make(
        tmp_path_factory.mktemp("ws") / "ws",
        {"baseline": GOOD, "b": GOOD},
        {"ref": "def run(x):\n    return x\n"},
    )


@pytest.fixture(autouse=True)
def written(root: Path) -> Iterator[None]:
    write(root)
    yield
    write(root)


def write(root: Path, *, config: str = CONFIG, ladder: str = LADDER) -> None:
    (root / "workbench.toml").write_text(config, encoding="utf-8")
    (root / "ablations" / "scale" / "ablation.toml").write_text(ladder, encoding="utf-8")


def test_the_files_of_these_tests_are_right(root: Path, capsys: Capsys) -> None:
    assert main(["list", "--project", str(root)]) == 0


# ---- what was accepted in silence ------------------------------------------------------------
REAL = ("gates.min_speedup", "timing.seconds", "limits.seconds_per_step")
COUNT = ("timing.sessions", "timing.rounds")
OUT_OF_RANGE = {
    REAL: ["inf", "nan", "-1", "0", "1e9", "1e400", "9" * 400, "true"],
    COUNT: ["10_000_000", "9" * 400, "0", "-3", "2000.0", "true"],
}


@pytest.mark.parametrize(
    ("key", "value"),
    [(key, value) for keys in OUT_OF_RANGE for key in keys for value in OUT_OF_RANGE[keys]],
)
def test_a_number_out_of_its_range_is_named(
    key: str, value: str, root: Path, capsys: Capsys
) -> None:
    table, _, name = key.partition(".")
    write(root, config=f'study = "scale"\n[{table}]\n{name} = {value}\n')
    refused(capsys, "list", words=["workbench.toml", f"'{key}'"], project=root)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("study = []", ["'study': expected `str`"]),
        ("study = ['a']", ["'study': expected `str`"]),
        ('study = "a\\u001fb"', ["'study': expected `str` matching"]),
        ("[profiler]\nset = ['full']", ["'profiler.set': expected `str`"]),
        ('[profiler]\nset = "a\\u0000b"', ["'profiler.set': expected `str` matching"]),
        ('[profiler]\nextra_flags = ["a\\u001bb"]', ["'profiler.extra_flags 1'"]),
        ("[profiler]\nextra_flags = [1]", ["'profiler.extra_flags 1': expected `str`"]),
        ("[profiler]\nclock_control = 'bse'", ["'profiler.clock_control': invalid enum value"]),
        ("gates = []", ["'gates': expected a table"]),
        ("[gates", ["not valid TOML"]),
        (f"x = {'[' * 5000}", ["not valid TOML", "nested"]),
        (f"x = {'9' * 5000}", ["not valid TOML"]),
        ("x = 1987-13-45", ["not valid TOML"]),
    ],
)
def test_odd_settings_are_named(text: str, words: list[str], root: Path, capsys: Capsys) -> None:
    write(root, config=text)
    refused(capsys, "list", words=["workbench.toml", *words], project=root)


BOUNDS = {"[1]": ("'step 'b'.prediction 1.",), "[true, 2]": ("'step 'b'.prediction 1.",)}


@pytest.mark.parametrize("table", ["factor", "range"])
@pytest.mark.parametrize(
    "pair",
    ["[nan, 1]", "[0, nan]", "[1, inf]", "[-inf, 1]", "[-2, 1]", "[2, 1]", "[1]", "[true, 2]"],
)
def test_bounds_of_a_prediction_are_finite_and_in_order(
    pair: str, table: str, root: Path, capsys: Capsys
) -> None:
    ladder = LADDER.replace("factor = [0.4, 0.6]", f"{table} = {pair}")
    write(root, ladder=ladder)
    told = BOUNDS.get(pair, (f"step 'b'.prediction.{table}", "[low, high]"))
    refused(capsys, "list", words=["ablation.toml", *told], project=root)


@pytest.mark.parametrize(
    ("line", "values", "words"),
    [
        ("primary = true", ['"false"', "0", "[]"], "'reference 'ref'.primary': expected `bool`"),
        ("schema_version = 1", ["true", "1.0", "2", '"1"', "[1]"], "schema_version must be 1"),
    ],
)
def test_a_key_has_values_of_its_type(
    line: str, values: list[str], words: str, root: Path, capsys: Capsys
) -> None:
    for value in values:
        write(root, ladder=LADDER.replace(line, f"{line.partition(' = ')[0]} = {value}"))
        refused(capsys, "list", words=["ablation.toml", words], project=root)


# ---- a name that is no file ------------------------------------------------------------------
def spoil(path: Path, how: str) -> None:
    path.unlink(missing_ok=True)
    match how:
        case "folder":
            path.mkdir()
        case "FIFO":
            os.mkfifo(path)
        case "loop":
            path.symlink_to(path)
        case "dangling":
            path.symlink_to("nowhere")
        case "not UTF-8":
            path.write_bytes(b'study = "\xff"')
        case "large":
            path.touch()
            os.truncate(path, 1 << 32)


KINDS = {
    "folder": "is a folder",
    "FIFO": "is no regular file",
    "loop": "link in a loop",
    "dangling": "is a link to nothing",
    "not UTF-8": "byte 0xff at offset 9",
}


@pytest.mark.parametrize("how", KINDS)
@pytest.mark.parametrize("file", ["workbench.toml", "ablations/scale/ablation.toml"])
def test_what_is_no_file_is_an_error(
    file: str, how: str, tmp_path: Path, capsys: Capsys, monkeypatch: Patch
) -> None:
    """Not silently another workspace: also where it is looked for from a folder below."""
    root = make(tmp_path / "ws", {"baseline": GOOD})
    spoil(root / file, how)
    refused(capsys, "list", words=[file, KINDS[how]], project=root)
    monkeypatch.chdir(root / "kernels" / "scale")
    assert KINDS[how] in error_of(capsys, "list")


@pytest.mark.parametrize("how", ["folder", "FIFO", "loop", "dangling"])
def test_a_variant_that_is_no_file_is_told(how: str, tmp_path: Path, capsys: Capsys) -> None:
    root = make(tmp_path / "ws", {"baseline": GOOD, "b": GOOD})
    spoil(root / "kernels" / "scale" / "b.py", how)
    words = ["ablation.toml names 'b'", "b.py", KINDS[how]]
    refused(capsys, "list", words=words, project=root)
    rewrite(root / "ablations/scale/ablation.toml", 'variant = "b"', 'variant = "b[n=2]"')
    refused(capsys, "list", words=words, project=root)


# ---- any contents ----------------------------------------------------------------------------
ODD = [
    *("", '""', "0", "-1", "1.5", "nan", "-inf", "inf", "1e999", "9" * 30, "9" * 400, "true"),
    *('"true"', '"\\u0000"', '"../x"', '"\\u001b[31m"', '"\\u202e"', '"b"', "[]", "[[]]", "{}"),
    *("[1, 2]", "[2, 1]", "[nan, nan]", '["b", "b"]', '["x"]', "{a = 1}", "1979-05-27", "07:32:00"),
    *("'''\n\n'''",),
]
LINE = re.compile(r"^(\w+) = .*$", re.MULTILINE)
TABLE = re.compile(r"^\[.*\]$", re.MULTILINE)


@st.composite
def spoilt(draw: st.DrawFn, text: str) -> str:
    """The text with some lines dropped, doubled, renamed, emptied or of another value."""
    for _ in range(draw(st.integers(1, 3))):
        spans = [found.span() for kind in (LINE, TABLE) for found in kind.finditer(text)]
        if not spans:
            return text
        start, end = draw(st.sampled_from(spans))
        line = text[start:end]
        key, equals, _ = line.partition(" = ")
        choices = ["", f"{line}\n{line}", line[:-1], line.replace("e", "ee", 1)]
        if equals:
            value = draw(st.sampled_from(ODD) | st.text(max_size=12).map(quoted))
            choices += 4 * [f"{key} = {value}"]
        text = text[:start] + draw(st.sampled_from(choices)) + text[end:]
    return text


def quoted(text: str) -> str:
    """A string of TOML."""
    inside = "".join(f"\\U{ord(c):08x}" for c in text if not 0xD800 <= ord(c) < 0xE000)
    return f'"{inside}"'


def settles(capsys: Capsys, root: Path, file: str) -> None:
    """``list`` ends well, or in exit code 2 and a message that names the file."""
    code = main(["list", "--project", str(root)])
    out, err = capsys.readouterr()
    assert "Traceback" not in err
    if code == 0:
        assert out
        return
    assert code == 2
    assert out == ""
    assert "error: " in err
    assert file in err or "unknown study" in err


@settings(max_examples=examples(80, many=5000))
@given(text=spoilt(CONFIG) | spoilt(LADDER))
def test_any_line_changed_is_read_or_named(text: str, root: Path, capsys: Capsys) -> None:
    is_ladder = "[[" in text or "schema_version" in text
    write(root, **{"ladder" if is_ladder else "config": text})
    settles(capsys, root, "ablation.toml" if is_ladder else "workbench.toml")


@settings(max_examples=examples(30, many=2000))
@given(
    data=st.binary(max_size=40) | st.text(max_size=40).map(lambda t: t.encode("utf-8", "replace")),
    cut=st.integers(0, 500),
    ladder=st.booleans(),
)
def test_any_bytes_are_read_or_named(
    data: bytes, cut: int, ladder: bool, root: Path, capsys: Capsys
) -> None:
    write(root)
    path = root / ("ablations/scale/ablation.toml" if ladder else "workbench.toml")
    whole = path.read_bytes()
    path.write_bytes(whole[:cut] + data + whole[cut:])
    settles(capsys, root, path.name)
