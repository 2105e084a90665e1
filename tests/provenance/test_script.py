"""What a script that runs its own sweep says of its class, and what of it is no part of that."""

from __future__ import annotations

import ast

import pytest

from dtsweep.provenance.script import reached

SCRIPT = """
import json
import torch
from pathlib import Path
from dtsweep import Sweep, run
import layers
from layers import CONFIG
HEADS = 3

def fill(config, times=1):
    config.update(times=times)

def configure(depth):
    CONFIG["depth"] = depth

def unused():
    CONFIG = {}
    CONFIG["width"] = 1

@CONFIG.register
class Net:
    def build(self):
        return torch.nn.Linear(TIMES, HEADS), CONFIG, layers.CONFIG, Path

TIMES = 2
"""
"""With a class that uses some names; a test goes on with a line that changes one of them, or none."""

REPORT = """
sweep = Sweep(workload=Net(), axes={"workers": AXIS})
frame = run(sweep)
"""


def counted(script: str) -> dict[str, list[str]]:
    """What counts of the class `Net`, as text."""
    return {name: [*map(ast.unparse, parts)] for name, parts in reached(ast.parse(script), "Net").items()}


@pytest.mark.parametrize(
    ("line", "new"),
    [
        ("SLOW = 1\nif SLOW: TIMES = 40\nelse: TIMES = 1", "SLOW = 0\nif SLOW: TIMES = 40\nelse: TIMES = 1"),
        ("if len(CONFIG) > 1: TIMES = 40", "if len(CONFIG) > 2: TIMES = 40"),
        ("CONFIG.update(times=1)", "CONFIG.update(times=40)"),
        ("with open('a.json') as f: CONFIG = json.load(f)", "with open('b.json') as f: CONFIG = json.load(f)"),
        ("for x in (1, 2): CONFIG.append(x)", "for x in (1, 3): CONFIG.append(x)"),
        ("while len(CONFIG) < 3: CONFIG.append(1)", "while len(CONFIG) < 4: CONFIG.append(1)"),
        ("match HEADS:\n    case 1: TIMES = 1", "match HEADS:\n    case 2: TIMES = 1"),
        ("try: TIMES = int('1')\nexcept ValueError: pass", "try: TIMES = int('1')\nexcept OSError: pass"),
        ("x = CONFIG.update(a=1)", "x = CONFIG.update(a=2)"),
        ("CONFIG.setdefault('a', []).append(1)", "CONFIG.setdefault('a', []).append(2)"),
        ("CONFIG.get('a').append(1)", "CONFIG.get('a').append(2)"),
        ("CONFIG['a'].append(1)", "CONFIG['a'].append(2)"),
        ("HEADS = 3", "last = CONFIG.pop()"),
        ("print(CONFIG.pop())", "print(CONFIG.pop(0))"),
        ("setattr(Net, 'heads', 3)", "setattr(Net, 'heads', 4)"),
        ("del Net.heads", "del Net.tails"),
        ("Net.heads = 3", "Net.heads = 4"),
        ("Net.heads: int = 3", "Net.heads: int = 4"),
        ("fill(CONFIG)", "fill(CONFIG, 2)"),
        ("json.fill([*CONFIG['a']], 1)", "json.fill([*CONFIG['a']], 2)"),
        ("fill(config=CONFIG)\nTIMES_ = 1", "TIMES_ = 1"),
        ("configure(1)", "configure(2)"),
        ("TIMES = run(Sweep(workload=Net, axes={}))", "TIMES = run(Sweep(workload=Net, axes={'seed': [1]}))"),
        ("part = CONFIG['a']\nmore = part\nmore.append(1)", "part = CONFIG['a']\nmore = part\nmore.append(2)"),
        ("for part in CONFIG.values(): part.append(1)", "for part in CONFIG.values(): part.append(2)"),
        ("@CONFIG.register\nclass Block: size = 1", "@CONFIG.register\nclass Block: size = 2"),
        (
            "def a(n): b(n)\ndef b(n): c(n)\ndef c(n): CONFIG.append(n)\na(1)",
            "def a(n): b(n)\ndef b(n): c(n)\ndef c(n): CONFIG.append(n)\na(2)",
        ),
        ("def twice(depth):\n    configure(depth)\ntwice(1)", "def twice(depth):\n    configure(depth)\ntwice(2)"),
        ("def f(n):\n    global TIMES\n    TIMES = n\nf(1)", "def f(n):\n    global TIMES\n    TIMES = n\nf(2)"),
        ("@configure\ndef f(): return 1", "@configure\ndef f(): return 2"),
        ("layers.CONFIG.update(a=1)", "layers.CONFIG.update(a=2)"),
        ("torch.backends.cudnn.benchmark = True", "torch.backends.cudnn.benchmark = False"),
        ("if (TIMES := 3): pass", "if (TIMES := 4): pass"),
    ],
)
@pytest.mark.parametrize("place", ["{}", 'if __name__ == "__main__":\n{}', "def main():\n{}\n    run()\nmain()"])
def test_what_may_change_what_the_class_uses_counts_with_all_that_it_hangs_on(line: str, new: str, place: str) -> None:
    indented = [text if place == "{}" else "\n".join(f"    {row}" for row in text.split("\n")) for text in (line, new)]
    one, other = (counted(SCRIPT + place.format(text) + REPORT) for text in indented)
    assert one != other


@pytest.mark.parametrize(
    "line",
    [
        "print(Net, CONFIG, HEADS)",
        "print(f'{HEADS}', CONFIG['a'], *CONFIG.items(), len(CONFIG))",
        "torch.manual_seed(0)",
        "torch.randn(3).sum()",
        "Path('out').mkdir()",
        "OTHER = {}\nOTHER['width'] = 4",
        "width = 3\nother = Net(HEADS)",
        "for row in (1, 2): print(row, Net)",
        "with open('out', 'w') as f: f.write('text')",
        "if HEADS: print(Net)",
        "unused()",
        "sweep = Sweep(workload=Net(fill(CONFIG)), axes={'micro_batch': [1, 2]})",
        "frame = run(Sweep(workload=Net(), axes={}))",
        "for row in run(sweep): print(row)",
        "def main():\n    frame = run(Sweep(workload=Net(CONFIG), axes={}))\n    print(frame)\nmain()",
        "def study():\n    axes = dict(kind=Net)\n    return Sweep(workload=Net, axes=axes)",
    ],
)
def test_what_else_a_script_does_is_no_part_of_its_class(line: str) -> None:
    assert counted(SCRIPT + line + REPORT) == counted(SCRIPT + REPORT)


@pytest.mark.parametrize("line", ["plot(frame, CONFIG)", "axis.axvline(HEADS)", "CONFIG.update(color='red')"])
def test_what_comes_after_the_last_sweep_has_run_does_not_count(line: str) -> None:
    assert counted(SCRIPT + REPORT + line) == counted(SCRIPT + REPORT)
    assert counted(SCRIPT + REPORT + line + REPORT) != counted(SCRIPT + REPORT)
    for again in ("helpers.go(sweep)", "helpers.go(Net())", "class A:\n    def go(self): run(sweep)\nA().go()"):
        assert counted(SCRIPT + REPORT + line + "\n" + again) != counted(SCRIPT + REPORT)
    main = "def main():\n    return dtsweep.run(Sweep(workload=Net(), axes={}))\nmain()\n"
    assert counted(SCRIPT + "import dtsweep\n" + main + line) == counted(SCRIPT)


def test_statements_stand_under_the_names_that_they_define_or_change() -> None:
    found = counted(SCRIPT + "if HEADS:\n    TIMES = 3\nconfigure(1)\n" + REPORT)
    assert found["TIMES"] == ["TIMES = 2", "if HEADS:\n    TIMES = 3"]
    assert found["CONFIG"][0] == "from layers import CONFIG"
    assert found["CONFIG"][2:] == ["configure(1)"]
    assert next(iter(found)) == "Net"
    assert not {"sweep", "frame", "unused", "fill"} & set(found)


def test_what_a_star_brings_counts_and_is_named_by_its_import() -> None:
    found = counted("from layers import *\ntry: from .nets import *\nfinally: pass\nclass Net: ...\nimport torch")
    assert set(found) == {"Net", "from layers import *", "from .nets import *"}
    assert found["from layers import *"] == ["from layers import *"]
