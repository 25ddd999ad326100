"""For the built site: links to files outside of docs/ become plain words, as the site has no such files."""

from __future__ import annotations

import re
from typing import Any

OUTSIDE = re.compile(r"\[([^\]]+)\]\((?:\.\./)+[^)]*\)")


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Called by mkdocs for each page before it is rendered."""
    return OUTSIDE.sub(r"\1", markdown)
