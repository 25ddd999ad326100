"""What ``import memfold`` gives, and what it costs."""

from __future__ import annotations

import subprocess
import sys

import memfold


def test_import_memfold_needs_nothing_but_the_standard_library() -> None:
    """The contract is free of dependencies: an agent that only wants the protocols pays for nothing else."""
    code = (
        "import sys; before = set(sys.modules); import memfold; memfold.ConsolidationResult()\n"
        "print(*{name.split('.')[0] for name in set(sys.modules) - before} - sys.stdlib_module_names)"
    )

    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert ended.stdout.split() == ["memfold"]


def test_every_public_name_is_there() -> None:
    """Those that need a library are imported when they are first asked for."""
    assert [name for name in memfold.__all__ if not hasattr(memfold, name)] == []
    assert memfold.Policy.__module__ == "memfold.policy"
    assert not hasattr(memfold, "polizei")
