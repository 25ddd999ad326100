"""What never leaves the machine: keys, tokens and passwords in the texts of memories, and what a person named."""

from __future__ import annotations

import re
from collections.abc import Sequence

REPLACEMENT = "[redacted]"

_SECRETS = (
    r"-----BEGIN [A-Z ]*PRIVATE KEY-----[\s\S]*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)",
    r"\beyJ[\w-]{8,}\.[\w-]{8,}\.[\w-]*",  # a JSON web token
    r"\b(?:sk|pk|rk)[-_][\w-]{16,}",
    r"\bgh[pousr]_\w{20,}|\bgithub_pat_\w{20,}|\bglpat-[\w-]{16,}",
    r"\bxox[a-z]-[\w-]{10,}",
    r"\b(?:AKIA|ASIA)[A-Z0-9]{16}\b",
    r"\bAIza[\w-]{30,}",
    r"(?<=://)[^\s/:@]+:[^\s/@]+(?=@)",
    r"(?i)\bbearer\s+[\w.~+/=-]{12,}",
    # the value behind a word that names a secret, however the two are joined
    r"(?i)(?<![a-z])(?:pass(?:word|wd|phrase)?|pwd|secret|token|api[ _-]?key|access[ _-]?key)"
    r"[\"']?\s*(?:[:=]|\bis\b)\s*[\"']?[^\s\"',;]{4,}",
    r"\b(?=[A-Za-z0-9+/_-]*\d)(?=[A-Za-z0-9+/_-]*[A-Za-z])[A-Za-z0-9+_-]{40,}={0,2}",
)


class Redactor:
    """Takes secrets out of texts, and what the given patterns find."""

    def __init__(self, patterns: Sequence[str] = ()) -> None:
        self._patterns = [re.compile(pattern) for pattern in (*_SECRETS, *patterns)]

    def __call__(self, text: str) -> str:
        for pattern in self._patterns:
            text = pattern.sub(REPLACEMENT, text)
        return text
