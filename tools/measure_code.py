"""Print the measures of the code base: rooms, imports, circles, lengths of functions and classes, names, docstrings.

Rooms are packages; a module beside packages is a room, too. Twins that are generated count for rooms and circles alone.

Usage:
    python -m tools.measure_code [FOLDER]    measure a checkout; this one by default
    python -m tools.measure_code --check     print what goes beyond its limit in this checkout; fail if anything does
"""

from __future__ import annotations

import ast
import re
import statistics
import subprocess
import sys
from collections import Counter, defaultdict
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
MANY_ATTRIBUTES = 20
GIVEN = frozenset({"QueueProperties", "Envelope"})
"""Classes whose attributes Azure's API, and Service Bus's messages, give."""
MOST_LONG_CLASSES, MOST_PRONOUNS, MOST_PRIVATE, MOST_PARTICIPLES = 2.0, 1.0, 3.5, 2.5
PRONOUNS = frozenset({"one", "several", "some", "others"})
"""Names of variables that say nothing of what these hold."""

_SENTENCE = re.compile(r"(?<=[.!?])\s+(?=[A-Z`])|\n\s*\n")
_FREE_RELATIVE = re.compile(rf"\s*{FREE_RELATIVE}(?!.*\?)")

Graph = Mapping[str, set[str]]


def main(arguments: list[str]) -> int:
    """Print the measures; return the exit status."""
    if arguments == ["--check"]:
        found = violations(ROOT)
        print("\n".join(found) or "the code keeps to its measures")
        return 1 if found else 0
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
    found = circles(graph)
    print(f"circles at any depth                 {len(found)}")
    for one in found:
        print(f"    {one}")
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
    names = Names(root)
    print(f"attributes over {MANY_ATTRIBUTES}                   {len(names.many_attributes)}")
    for name, attributes in sorted(names.many_attributes.items(), key=lambda item: -len(item[1])):
        print(f"    {name} {len(attributes)}")
    print(f"class names that occur twice or more {len(names.duplicates)}")
    print(f"    {' '.join(names.duplicates)}")
    print(f"pronouns as variables, per 1,000     {names.per_thousand(names.pronouns):.1f}")
    print(f"private names of others, per 1,000   {names.per_thousand(names.private):.1f}")
    print(f"functions named by a participle      {100 * len(names.participles) / len(lengths):.1f} %")
    print(f"public names with a docstring        {100 * sum(map(bool, public.values())) / len(public):.1f} %")
    print(f"sentences that open with what, who   {free:.2f} % of {len(sentences)}")
    return 0


def violations(root: Path) -> list[str]:
    """Return a line for each thing that goes beyond its limit; import-linter checks the layers."""
    names = Names(root)
    functions, classes, _ = definitions(root)
    found = [f"a circle of imports: {text}" for text in circles(imports_of(root))]
    found += [
        f"{name} has {len(attributes)} attributes, base classes included: at most {MANY_ATTRIBUTES}; make parts of it"
        for name, attributes in names.many_attributes.items()
        if name not in GIVEN
    ]
    found += [
        f"{name} has {length} lines: a function has at most {LONG_FUNCTION}"
        for name, length in functions.items()
        if length > LONG_FUNCTION
    ]
    found += [f"class {name} exists more than once" for name in names.duplicates]
    shares = {
        f"classes over {LONG_CLASS} lines, per 10,000 lines": (
            10_000 * sum(length > LONG_CLASS for length in classes.values()) / names.lines,
            MOST_LONG_CLASSES,
        ),
        "variables that a pronoun names, per 1,000 lines": (names.per_thousand(names.pronouns), MOST_PRONOUNS),
        "private names of others, per 1,000 lines": (names.per_thousand(names.private), MOST_PRIVATE),
        "functions that a participle names, %": (100 * len(names.participles) / len(functions), MOST_PARTICIPLES),
    }
    found += [f"{name}: {value:.2f}, at most {most:g}" for name, (value, most) in shares.items() if value > most]
    return found


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


def circles(graph: Graph) -> list[str]:
    """Return a circle between the parts of each package, at every depth; none of a package without one."""
    parts: dict[str, dict[str, set[str]]] = defaultdict(dict)
    for module, imported in graph.items():
        for package, part in parts_of(module):
            edges = parts[package].setdefault(part, set())
            edges |= {other for target in imported for above, other in parts_of(target) if above == package} - {part}
    return [text for package in sorted(parts) if (text := circle(parts[package])) is not None]


@cache
def parts_of(module: str) -> tuple[tuple[str, str], ...]:
    """Return the packages around a module, "" around all, each with its part that has the module or is it."""
    names = module.split(".")
    return tuple((".".join(names[:depth]), ".".join(names[: depth + 1])) for depth in range(len(names)))


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
    """Return the number of floors if each node is above those that it imports."""
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


class Names:
    """The names that the files of a checkout use.

    Args:
        root: The checkout.

    Attributes:
        many_attributes: The attributes of classes that have too many, by class; those of base classes are among them.
        duplicates: Names that more than one class has.
        lines: How many lines the files have.
        pronouns: How many times a variable is used that a pronoun names.
        private: How many times a private name of another object is used.
        participles: Functions that a participle or a preposition alone names.
    """

    def __init__(self, root: Path) -> None:
        self.pronouns = self.private = self.lines = 0
        self.participles: list[str] = []
        self._bases: dict[str, list[str]] = {}
        self._attributes: dict[str, set[str]] = {}
        self._count: Counter[str] = Counter()
        for path in sources(root):
            text = path.read_text("utf-8")
            self.lines += text.count("\n")
            # The two halves of what is written for each by hand have one name for each thing.
            self._add(ast.parse(text), counted="_sync" not in path.parts)
        self.many_attributes = {
            name: attributes
            for name in self._attributes
            if len(attributes := self._all_attributes(name)) > MANY_ATTRIBUTES
        }
        self.duplicates = sorted(name for name, count in self._count.items() if count > 1 and not name.startswith("_"))

    def per_thousand(self, count: int) -> float:
        """Return how many that are for each thousand lines."""
        return 1_000 * count / self.lines

    def _add(self, tree: ast.Module, *, counted: bool) -> None:
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                self._count[node.name] += counted
                self._bases[node.name] = [base.id for base in node.bases if isinstance(base, ast.Name)]
                self._attributes.setdefault(node.name, set()).update(attributes_of(node))
            elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                if is_participle(node.name):
                    self.participles.append(node.name)
                self.pronouns += sum(argument.arg in PRONOUNS for argument in node.args.args)
            elif isinstance(node, ast.Name):
                self.pronouns += node.id in PRONOUNS
            elif isinstance(node, ast.Attribute):
                self.private += (
                    node.attr.startswith("_")
                    and not node.attr.startswith("__")
                    and not (isinstance(node.value, ast.Name) and node.value.id in {"self", "cls"})
                )

    def _all_attributes(self, name: str) -> set[str]:
        own = set(self._attributes.get(name, ()))
        return own.union(*(self._all_attributes(base) for base in self._bases.get(name, ()) if base != name))


def attributes_of(node: ast.ClassDef) -> Iterator[str]:
    """Yield the attributes that a class's methods assign, that its slots name, or that a dataclass has as fields."""
    for part in node.body:
        if isinstance(part, ast.Assign) and any(
            isinstance(target, ast.Name) and target.id == "__slots__" for target in part.targets
        ):
            yield from (str(constant.value) for constant in ast.walk(part.value) if isinstance(constant, ast.Constant))
        elif isinstance(part, ast.AnnAssign) and isinstance(part.target, ast.Name) and is_data(node):
            yield part.target.id
        elif isinstance(part, (ast.FunctionDef, ast.AsyncFunctionDef)):
            for inner in ast.walk(part):
                if (
                    isinstance(inner, ast.Attribute)
                    and isinstance(inner.ctx, ast.Store)
                    and isinstance(inner.value, ast.Name)
                    and inner.value.id == "self"
                ):
                    yield inner.attr


def is_data(node: ast.ClassDef) -> bool:
    """Return whether a class is a dataclass."""
    return any("dataclass" in ast.unparse(decorator) for decorator in node.decorator_list)


_PREPOSITIONS = """
about after among around as at before behind beside between beyond by for from in into of on over per since to under until up
upon upto via with within without
"""
PREPOSITIONS = frozenset(_PREPOSITIONS.split())
_IRREGULAR = """
begun bound broken brought built chosen done drawn fallen felt found given gone got had heard held hidden kept known laid led
left lent lost made meant met overdue paid said seen sent shown stood stuck taken taught thought thrown told torn understood
woken won worn written
"""
IRREGULAR = frozenset(_IRREGULAR.split())
"""Participles that do not end in "ed" and are no imperatives as well."""


def is_participle(name: str) -> bool:
    """Return whether a participle or a preposition, or both, name a function."""
    words = name.strip("_").split("_")
    if name.startswith("__") or len(words) > 2:
        return False
    first, rest = words[0], words[1:]
    participle = first in IRREGULAR or (
        first.endswith("ed") and len(first) > 4 and first not in {"embed", "exceed", "proceed", "succeed"}
    )
    if not rest:
        return (
            participle or first in PREPOSITIONS or (first.endswith("ing") and first not in {"string", "ping", "ring"})
        )
    return (participle or first in {"let", "go"}) and rest[0] in PREPOSITIONS | {"go"}


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
