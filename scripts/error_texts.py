"""
The texts of errors in the code: the site's search leads from each to a page.

Values that a text shows, such as the name of a column, are holes in it: the search looks for the
words around them.
"""

import ast
import re
from collections import ChainMap, defaultdict
from collections.abc import Iterator
from itertools import islice, product
from pathlib import Path
from typing import Final

__all__ = ["GENERAL", "HOLE", "PAGES", "error_texts", "has_own_words", "heads", "token_of"]

CODE: Final = Path(__file__).resolve().parents[1] / "sessionkit"
HOLE: Final = "\N{HORIZONTAL ELLIPSIS}"
WORDS: Final = 6
"""How many words of a text somebody types or pastes."""
FEW: Final = 2
SHORT: Final = 4
MOST: Final = 64
"""How many texts one call may build."""
GENERAL: Final = "how-to/troubleshoot"
PAGES: Final = {
    "__main__": "reference/inspector",
    "_arguments": "reference/spec",
    "_engine/keys": "how-to/state-per-key",
    "_engine/shell/pages": "explanation/buckets",
    "_engine/shell/paged_bucket": "explanation/buckets",
    "_engine/shell/reading": "how-to/change-a-rule",
    "_engine/shell/seed": "how-to/backfill",
    "_engine/sessions/features/key_history": "how-to/remember-a-user",
    "_instants": "reference/spec",
    "addons/delay": "how-to/choose-a-delay",
    "addons/delta": "how-to/write-to-postgres",
    "addons/gap": "how-to/choose-a-gap",
    "addons/iceberg": "how-to/write-to-postgres",
    "addons/merging": "how-to/write-to-postgres",
    "addons/monitor": "how-to/watch-a-query",
    "addons/postgres": "how-to/write-to-postgres",
    "addons/presets": "how-to/common-definitions",
    "addons/repair": "how-to/backfill",
    "addons/report": "how-to/make-a-report",
    "addons/sources": "how-to/rejected-rows",
    "addons/tables": "how-to/write-to-postgres",
    "aggregates": "how-to/aggregate-sessions",
    "aggregates/_expressions": "how-to/combine-aggregates",
    "aggregates/_funnels": "how-to/funnels-and-paths",
    "spark/_logs": "how-to/restart",
    "spark/_paths": "how-to/start-a-query",
    "spark/_refusals": "how-to/start-a-query",
    "spark/_sail": "how-to/without-java",
    "spark/_seeds": "how-to/backfill",
    "spark/_settings": "how-to/start-a-query",
    "spark/checkpoints": "how-to/restart",
    "spark/checkpoints/erasing": "how-to/erase-a-user",
    "spark/checkpoints/migrate": "how-to/change-a-rule",
    "spark/checkpoints/reading": "reference/inspector",
    "spark/checkpoints/changes": "reference/inspector",
    "spark/dedup": "how-to/deduplicate",
    "spark/jobs/modules": "how-to/clusters",
    "spark/jobs/pickles": "how-to/clusters",
    "spark/jobs/run": "how-to/start-a-query",
    "spark/jobs/transform_with_state": "how-to/from-transform-with-state",
    "spark/progress": "how-to/rejected-rows",
    "spark/query": "how-to/start-a-query",
    "spark/sinks": "how-to/write-to-tables",
    "spark/watermarks": "how-to/watermarks",
    "spark/windows": "how-to/windowed-aggregation",
    "spec": "reference/spec",
    "spec/memory": "how-to/remember-a-user",
    "spec/stateful": "reference/stateful-spec",
    "spec/views": "how-to/state-per-key",
    "state": "reference/types",
    "testing": "how-to/test-a-spec",
    "testing/explain": "how-to/explain-a-session",
    "testing/group_state": "how-to/from-hand-written-code",
    "timeouts": "how-to/cut-sessions",
}
"""The page about what a part of the package refuses; of the longest path that fits."""
Names = ChainMap[str, list[ast.expr]]


def error_texts() -> dict[str, set[str]]:
    """Return every text that the code raises, and the pages that it leads to."""
    found = defaultdict[str, set[str]](set)
    for path in sorted(CODE.rglob("*.py")):
        page = page_of(path.relative_to(CODE).with_suffix("").as_posix())
        tree = ast.parse(path.read_text("utf-8"))
        for text in raised(tree, ChainMap()):
            found[" ".join(text.partition("\n\n")[0].split())].add(page)
    return dict(sorted(found.items()))


def page_of(module: str) -> str:
    """Return the page about the errors of a module."""
    fits = [part for part in PAGES if module == part or module.startswith(f"{part}/")]
    return PAGES[max(fits, key=len)] if fits else GENERAL


def heads() -> dict[str, list[str]]:
    """Return how the texts begin that lead to each page; what fits two pages is general."""
    pages = defaultdict[str, set[str]](set)
    for text, leads in error_texts().items():
        if has_own_words(text):
            pages[head_of(text)] |= leads
    found = defaultdict[str, list[str]](list)
    for head, leads in sorted(pages.items()):
        found[GENERAL if len(leads) > 1 else min(leads)].append(head)
    return dict(found)


def head_of(text: str) -> str:
    """Return the first words of a text, in lower case and without marks."""
    words = re.findall(rf"\w+|{HOLE}", text.lower())
    return " ".join(words[:WORDS])


def has_own_words(text: str) -> bool:
    """Return whether a text begins with more than values, and isn't a part of other texts."""
    head = head_of(text).split()
    own = [word for word in head if word != HOLE]
    return len(own) > FEW or (HOLE in head and len("".join(own)) > SHORT)


def token_of(page: str) -> str:
    """Return the word that a page is indexed by, to which `search.js` turns the texts."""
    return f"errorsof{re.sub('[^a-z]', '', page)}"


# -- what the code says ---------------------------------------------------------------------------


def raised(scope: ast.AST, names: Names) -> Iterator[str]:
    """Yield the texts of the errors that are built in a scope, and in the functions of it."""
    names = names.new_child(assigned(scope))
    for node in own_nodes(scope):
        match node:
            case ast.FunctionDef():
                yield from raised(node, names)
            case ast.Call(func=called, args=[text, *_]) if is_error(called):
                yield from texts_of(text, names)
            case ast.Tuple(elts=[text, _]) if gives_texts(scope):
                yield from texts_of(text, names)
            case ast.AnnAssign(value=ast.Dict(values=values)) if gives_texts(node):
                for value in values:
                    yield from texts_of(value.elts[0], names)


def own_nodes(scope: ast.AST) -> Iterator[ast.AST]:
    """Yield the nodes of a scope in the order of the code, without what is in its functions."""
    for node in ast.iter_child_nodes(scope):
        yield node
        if not isinstance(node, ast.FunctionDef):
            yield from own_nodes(node)


def is_error(called: ast.expr) -> bool:
    """Return whether a call builds an error, or what one is built from."""
    name = getattr(called, "id", getattr(called, "attr", ""))
    return name.endswith("Error") or name in {"Failure", "Problem"}


def gives_texts(node: ast.AST) -> bool:
    """Return whether a function returns texts with their hints, or a name has them."""
    said = getattr(node, "returns", getattr(node, "annotation", None))
    return said is not None and "tuple[str, str]" in ast.unparse(said)


def assigned(scope: ast.AST) -> dict[str, list[ast.expr]]:
    """Return what names are given in a scope."""
    found = defaultdict[str, list[ast.expr]](list)
    for node in own_nodes(scope):
        match node:
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                found[name].append(value)
            case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value):
                found[name].append(value)
            case ast.Assign(targets=[ast.Tuple(elts=targets)], value=ast.Tuple(elts=values)):
                for target, value in zip(targets, values, strict=False):
                    if isinstance(target, ast.Name):
                        found[target.id].append(value)
            case ast.AugAssign(target=ast.Name(id=name), value=value):
                found[name] = [ast.BinOp(one, ast.Add(), value) for one in found[name]]
    return dict(found)


def texts_of(node: ast.expr, names: Names, seen: tuple[str, ...] = ()) -> list[str]:
    """Return what an expression may say, with `HOLE` for values that only a run knows."""
    match node:
        case ast.Constant(value=str() as text):
            return [text]
        case ast.JoinedStr(values=parts):
            return joined(parts, names, seen)
        case ast.FormattedValue(value=value, format_spec=None):
            return texts_of(value, names, seen)
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            return joined([left, right], names, seen)
        case ast.IfExp(body=body, orelse=other):
            return [*texts_of(body, names, seen), *texts_of(other, names, seen)]
        case ast.Name(id=name) if name in names and name not in seen:
            found = (texts_of(value, names, (*seen, name)) for value in names[name])
            return [*dict.fromkeys(text for texts in found for text in texts)]
        case ast.Call(func=ast.Name(id="with_hint" | "wrong_class"), args=[text, *_]):
            return [f"{each} {HOLE}" for each in texts_of(text, names, seen)]
    return [HOLE]


def joined(parts: list[ast.expr], names: Names, seen: tuple[str, ...]) -> list[str]:
    each = [texts_of(part, names, seen) for part in parts]
    return ["".join(chosen) for chosen in islice(product(*each), MOST)]
