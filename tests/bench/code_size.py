"""Print the size of the package: modules, lines of code, comments, repeated class names, lines of
C.

    python tests/bench/code_size.py [PACKAGE]

Lines of code are those with a token that is neither a comment nor a docstring, of a module, class,
function or attribute.
"""

from __future__ import annotations

import ast
import io
import sys
import tokenize
from collections import Counter
from pathlib import Path

_NO_CODE = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENDMARKER,
    tokenize.ENCODING,
}


def docstring_lines(tree: ast.Module) -> set[int]:
    """The lines of all docstrings, those of attributes included: texts that follow an
    assignment.
    """
    lines: set[int] = set()
    for node in ast.walk(tree):
        if not isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        for before, after in zip((node, *node.body), node.body, strict=False):
            is_text = (
                isinstance(after, ast.Expr)
                and isinstance(after.value, ast.Constant)
                and isinstance(after.value.value, str)
            )
            if is_text and (before is node or isinstance(before, ast.Assign | ast.AnnAssign)):
                lines.update(range(after.lineno, (after.end_lineno or after.lineno) + 1))
    return lines


def main(package: Path) -> None:
    """One line for each figure."""
    modules = sorted(package.rglob("*.py"))
    code = comments = lines = 0
    classes: Counter[str] = Counter()
    for path in modules:
        text = path.read_text(encoding="utf-8")
        tree = ast.parse(text)
        tokens = list(tokenize.generate_tokens(io.StringIO(text).readline))
        used = {
            line
            for token in tokens
            if token.type not in _NO_CODE
            for line in range(token.start[0], token.end[0] + 1)
        }
        code += len(used - docstring_lines(tree))
        comments += sum(token.type == tokenize.COMMENT for token in tokens)
        lines += text.count("\n")
        classes.update(node.name for node in tree.body if isinstance(node, ast.ClassDef))
    sources = [*package.glob("*.c"), *package.glob("c/**/*.[ch]")]
    print(f"modules: {len(modules)}")
    print(f"lines: {lines}, of code: {code}")
    print(f"comments per 100 lines of code: {100 * comments / code:.1f}")
    print(f"class names that stand more than once: {sum(count > 1 for count in classes.values())}")
    print(f"lines of C: {sum(path.read_text(encoding='utf-8').count(chr(10)) for path in sources)}")
    print(f"extensions: {len(list(package.glob('*.c')))}")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parents[2] / "otel_eval")
