"""Print the measures of the code base: rooms, imports, circles, lengths of functions and classes, docstrings.

Rooms are packages; a module beside packages is a room, too. Twins that are generated count for rooms and circles alone.

Usage:
    python -m tools.measure_code [FOLDER]    measure a checkout; this one by default
"""

from __future__ import annotations

import ast
import re
import statistics
import subprocess
import sys
from collections.abc import Iterator, Mapping
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import grimp

from tools.check_english import FREE_RELATIVE

ROOT = Path(__file__).resolve().parent.parent

PACKAGES = {"facade": "kafkabus", "mapping": "kafkabus_mapping", "spark": "kafkabus_spark"}
LONG_FUNCTION = 50
LONG_CLASS = 300

_SENTENCE = re.compile(r"(?<=[.!?])\s+(?=[A-Z`])|\n\s*\n")
_FREE_RELATIVE = re.compile(rf"\s*{FREE_RELATIVE}(?!.*\?)")

Graph = Mapping[str, set[str]]


def main(arguments: list[str]) -> int:
    """Print the measures; return the exit status."""
    root = Path(arguments[0]).resolve() if arguments else ROOT
    graph = imports_of(root)
    rooms = rooms_of(graph, root)
    functions, classes, docstrings = definitions(root)
    lengths = sorted(functions.values())
    share = 100 * sum(length > LONG_FUNCTION for length in lengths) / len(lengths)
    public = {name: text for name, text in docstrings.items() if ":_" not in name}
    sentences = [one for text in docstrings.values() if text for one in _SENTENCE.split(text) if one.strip()]
    free = 100 * sum(_FREE_RELATIVE.match(one) is not None for one in sentences) / len(sentences)
    print(f"rooms                                {len(rooms)}")
    print(f"floors                               {floors(rooms)}")
    print(f"arrows between rooms                 {sum(map(len, rooms.values()))}")
    print(f"arrows against the layers            {broken_layers(root)}")
    print(f"circles between rooms                {circle(rooms) or 0}")
    print(f"circles between modules              {circle(graph) or 0}")
    print(f"functions                            {len(lengths)}")
    print(f"lines of a function, median and p90  {statistics.median(lengths):g}, {lengths[len(lengths) * 9 // 10]}")
    print(f"functions over {LONG_FUNCTION} lines              {share:.2f} %")
    for name, length in sorted(functions.items(), key=lambda one: -one[1]):
        if length > LONG_FUNCTION:
            print(f"    {name} {length}")
    print(f"classes over {LONG_CLASS} lines               {sum(length > LONG_CLASS for length in classes.values())}")
    for name, length in sorted(classes.items(), key=lambda one: -one[1]):
        if length > LONG_CLASS:
            print(f"    {name} {length}")
    print(f"public names with a docstring        {100 * sum(map(bool, public.values())) / len(public):.1f} %")
    print(f"sentences that open with what, who   {free:.2f} % of {len(sentences)}")
    return 0


def imports_of(root: Path) -> dict[str, set[str]]:
    """Return the modules of the packages, and those that each imports: types and local imports included."""
    for folder in PACKAGES:
        sys.path.insert(0, str(root / folder))
    graph = grimp.build_graph(*PACKAGES.values(), cache_dir=None)
    return {module: graph.find_modules_directly_imported_by(module) for module in graph.modules}


def rooms_of(graph: Graph, root: Path) -> dict[str, set[str]]:
    """Return the rooms, and those that the modules of each import."""
    packages = {module for module in graph if folder_of(module, root).is_dir()}
    parents = {package.rpartition(".")[0] for package in packages}

    @cache
    def room(module: str) -> str:
        package = module.rpartition(".")[0]
        return module if module in packages or package in parents else package

    rooms: dict[str, set[str]] = {room(module): set() for module in graph}
    for module, others in graph.items():
        rooms[room(module)] |= {room(other) for other in others} - {room(module)}
    return rooms


def folder_of(module: str, root: Path) -> Path:
    """Return the folder that a module has if it is a package."""
    top = next(folder for folder, package in PACKAGES.items() if module.partition(".")[0] == package)
    return root / top / module.replace(".", "/")


def circle(graph: Graph) -> str | None:
    """Return a circle of imports; None if there is none."""
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return " -> ".join(error.args[1])
    return None


def broken_layers(root: Path) -> str:
    """Return how many of the contracts in pyproject.toml are broken, as import-linter says."""
    done = subprocess.run(
        [Path(sys.executable).with_name("lint-imports")], cwd=root, capture_output=True, text=True, check=False
    )
    found = re.search(r"(\d+) kept, (\d+) broken", done.stdout)
    return "import-linter says nothing" if found is None else f"{found[2]}, {found[1]} contracts kept"


def floors(graph: Graph) -> int | str:
    """Return the number of floors if each node stands above those that it imports."""
    if circle(graph):
        return "none: there is a circle"
    height: dict[str, int] = {}
    for node in TopologicalSorter(graph).static_order():
        height[node] = 1 + max((height[other] for other in graph.get(node, ())), default=0)
    return max(height.values())


def definitions(root: Path) -> tuple[dict[str, int], dict[str, int], dict[str, str | None]]:
    """Return the lines of code of functions, the lines of classes, and the docstrings of all, by name."""
    functions: dict[str, int] = {}
    classes: dict[str, int] = {}
    docstrings: dict[str, str | None] = {}
    for path in sources(root):
        text = path.read_text("utf-8")
        module = str(path.relative_to(root))
        tree = ast.parse(text)
        docstrings[module] = ast.get_docstring(tree)
        for name, node in named(tree, module):
            if not any(ast.unparse(one).endswith(("override", "overload", ".setter")) for one in node.decorator_list):
                docstrings[name] = ast.get_docstring(node)
            if isinstance(node, ast.ClassDef):
                classes[name] = (node.end_lineno or 0) - node.lineno + 1
            else:
                functions[name] = lines_of(node, text.splitlines())
    return functions, classes, docstrings


def sources(root: Path) -> Iterator[Path]:
    """Yield the files that people write."""
    for folder, package in PACKAGES.items():
        for path in sorted((root / folder / package).rglob("*.py")):
            if not path.read_text("utf-8").startswith("# Generated"):
                yield path


def named(tree: ast.AST, prefix: str) -> Iterator[tuple[str, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef]]:
    """Yield classes, functions and methods with their names; functions inside functions belong to those."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            name = f"{prefix}:{node.name}"
            yield name, node
            if isinstance(node, ast.ClassDef):
                yield from named(node, name)


def lines_of(node: ast.FunctionDef | ast.AsyncFunctionDef, lines: list[str]) -> int:
    """Return the lines of a function's body without docstring, blank lines and comments."""
    body = node.body[1:] if ast.get_docstring(node) is not None else node.body
    if not body:
        return 0
    return sum(
        bool(line.strip()) and not line.lstrip().startswith("#")
        for line in lines[body[0].lineno - 1 : (node.end_lineno or 0)]
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
