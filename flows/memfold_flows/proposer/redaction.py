"""What never leaves the machine: keys, tokens and passwords in the texts of memories, and what a person named.

Libraries that look for secrets read source code line by line; memories are sentences ("the password is ..."), so that
both are looked for here: what has the form of a key, and what somebody calls one.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

MARK = "[redacted"

#: Private keys, and the tokens that services give out, by how they begin.
_FORMS = (
    r"-----BEGIN [A-Z0-9 ]*PRIVATE KEY(?: BLOCK)?-----[\s\S]*?(?:-----END [A-Z0-9 ]*PRIVATE KEY(?: BLOCK)?-----|\Z)",
    r"\bAGE-SECRET-KEY-1\w{20,}",
    r"\beyJ[\w-]{8,}\.[\w-]{8,}\.[\w-]*",  # a JSON web token
    r"\b(?:sk|pk|rk)[-_][\w-]{16,}|\bwhsec_\w{16,}",
    r"\bgh[pousr]_\w{20,}|\bgithub_pat_\w{20,}|\bgl(?:pat|dt|rt|ptt)-[\w-]{16,}",
    r"\bxox[a-z]-[\w-]{10,}|\bxapp-[\w-]{10,}|(?<=hooks\.slack\.com/services/)[\w/]+",
    r"\b(?:AKIA|ASIA|ABIA|ACCA)[A-Z0-9]{16}\b",
    r"\bAIza[\w-]{30,}|\bya29\.[\w-]{20,}|\bGOCSPX-[\w-]{20,}",
    r"\bhf_\w{16,}|\bnpm_\w{30,}|\bpypi-[\w-]{16,}|\bdop_v1_\w{32,}|\bshp(?:at|ca|pa|ss)_\w{16,}|\bhv[sb]\.[\w-]{20,}",
    r"\bSG\.[\w-]{16,}\.[\w-]{16,}|\bkey-[0-9a-f]{32}\b|\b(?:SK|AC)[0-9a-f]{32}\b|\b\d{8,10}:[\w-]{35}\b",
    r"(?<=://)[^\s/?#@]*(?::[^\s/?#]*)?(?=@)",  # who logs in at a URL, and how
    r"(?i)\bauthorization[\"']?\s*[:=]\s*[\"']?(?:[a-z]+\s+)?(?P<secret>[^\s\"',]{4,})",
    r"(?i)\b(?:bearer|basic)\s+(?P<secret>(?=[^\s\"',]*[\d=])[\w.~+/=-]{8,})",
    r"(?<![\w/+=])(?=[\w/+]*\d)(?=[\w/+]*[a-z])(?=[\w/+]*[A-Z])[A-Za-z0-9/+]{40}(?![\w/+=])",  # of AWS
    r"\b(?=[A-Za-z0-9+/_-]*\d)(?=[A-Za-z0-9+/_-]*[A-Za-z])[A-Za-z0-9+_-]{40,}={0,2}",
    r"\b[A-Z]{2}\d{2}(?: ?[A-Z0-9]{4}){2,7}(?: ?[A-Z0-9]{1,3})?\b",  # of a bank account
)

_WORDS = (
    r"(?:\w*(?:pass(?:words?|wd|phrases?|codes?)|pwd|secrets?|tokens?)|\w*api[ _-]?keys?|\bpw"
    r"|\w*(?:access|secret|private|account)[ _-]?keys?|log-?in|credentials?|pass(?:wort|wörter)|kennw(?:ort|örter)"
    r"|zugangscode|geheimnis|mots? de passe|contraseñas?|contrasenas?|claves?|senhas?|пароль|пароли|токен"
    r"|(?:seed|recovery) phrase)"
)
_OF_DIGITS = (
    r"(?:pin(?:[ -]?(?:code|number|nummer))?|puk|cvv2?|cvc|tan|geheimzahl|(?:door|gate|alarm|access|entry|security|lock"
    r"|safe|garage|card|account|karten|konto|tür|kreditkarten)[ -]?(?:codes?|numbers?|nummer)|social security number"
    r"|ssn)"
)
#: "for the garage", between what is secret and its value.
_JOINT = r"[\"']?(?:\s+(?:for|of|to|on|at|in|für|von|zu|pour|de|para|для|от)(?:\s+[^\s.;:=]+){1,5}?)?\s*"
_IS = (
    r"(?:[:=]|->|=>|\b(?:is|are|was|ist|lautet|sind|est|es|são|equals|это)\b(?:\s+(?:now|currently|set to|changed to))?"
    r"\s*:?)\s*"
)
#: What may stand behind "the password is" without being it.
_NO_SECRET = (
    r"(?!(?:a|an|the|in|on|at|not|no|with|kept|stored|saved|changed|rotated|reset|required|needed|known|wrong|valid"
    r"|invalid|expired|shared|written|hidden|too|only|never|always|updated|managed|used|sent|weak|strong|missing|nicht"
    r"|im|bei|geändert|gespeichert|changée?|dans|pas|en|guardada)\b(?:\s|$|[.,;]))(?!\[redacted)"
)
_MIXED = r"(?=[^\s\"',;)]*\d)(?=[^\s\"',;)]*[^\W\d])[^\s\"',;)]"

#: What somebody calls a password, token or number.
_CALLED = (
    rf"(?i)\b{_WORDS}{_JOINT}(?:[:=]|->|=>)\s*[\"']?(?P<secret>(?!\[redacted)[^\s\"',;]{{3,}}"
    r"(?:\s*(?:,|;|and|or|und)\s*(?=[^\s,;]*\d)[^\s\"',;]{3,})*)",
    rf"(?i)\b{_WORDS}{_JOINT}{_IS}[\"'“„]?(?P<secret>{_NO_SECRET}[^\s\"',;]{{3,}})",
    rf"(?i)\b(?:{_WORDS}|pass)[\"']?,?\s+[\"'“„(]?(?P<secret>{_MIXED}{{4,}})",
    rf"(?i)\b{_WORDS}\b[^.!?\n]*?\s[\"'“„(]?(?P<secret>{_MIXED}{{6,}})",
    r"(?i)\bpass\s*[:=]\s*[\"']?(?P<secret>(?!\[redacted)[^\s\"',;]{3,})",
    r"(?i)(?:\blog(?:ged)?[ -]?in\b[^.\n]{0,30}?|\s-u|--user)[ =][\"']?[^\s:\"']+:(?P<secret>[^\s/\"']{3,})",
    r"(?i)(?<![^\s\"',;])(?P<secret>[^\s\"',;]{4,})[\"']?\s+(?:is|was|ist|est|es)\s+(?:the|my|our|your|his|her|their|das|le|la)\s+"
    rf"(?:[^\s.;]+\s+){{0,3}}{_WORDS}\b",
    r"(?i)(?:passphrases?|(?:seed|recovery) phrase)[^.;:=\n]{0,40}?(?::|=|\bis\b)\s*"
    r"(?P<secret>(?!\[redacted)[^.;\n]{4,})",
    r"(?:密码|密碼|口令|令牌|密钥|パスワード|暗証番号|पासवर्ड|كلمة المرور|كلمة السر)\s*(?:是|为|為|は|है|هي|[:：=])?\s*"
    r"(?P<secret>[A-Za-z0-9!-/:-@\[-`{-~]{3,})",
    rf"(?i)\b{_OF_DIGITS}{_JOINT}(?:{_IS}|\s+|(?<=\s))[\"']?(?P<secret>#?\d[\d -]{{1,22}}\d#?)",
)

_CARD = re.compile(r"(?<![\d.-])\d(?:[ -]?\d){12,18}(?![\d.-])")


class Redactor:
    """Takes secrets out of texts, and what the given patterns find."""

    def __init__(self, patterns: Sequence[str] = ()) -> None:
        self._patterns = [re.compile(pattern) for pattern in (*_FORMS, *_CALLED, *patterns)]

    def __call__(self, text: str) -> str:
        """The text without its secrets."""
        return self._without(text, lambda _secret: f"{MARK}]")

    def numbered(self) -> Callable[[str], str]:
        """The same for the texts of one question, in which one secret has one number and another has another."""
        numbers: dict[str, int] = {}
        return lambda text: self._without(
            text, lambda secret: f"{MARK} {numbers.setdefault(secret, len(numbers) + 1)}]"
        )

    def _without(self, text: str, mark: Callable[[str], str]) -> str:
        def hide(match: re.Match[str]) -> str:
            name = "secret" if "secret" in match.re.groupindex else 0
            if not match[name] or match[name].startswith(MARK):
                return match[0]
            start, end = (place - match.start() for place in match.span(name))
            return match[0][:start] + mark(match[name]) + match[0][end:]

        for pattern in self._patterns:
            text = pattern.sub(hide, text)
        return _CARD.sub(lambda match: mark(match[0]) if _is_card(match[0]) else match[0], text)


def _is_card(written: str) -> bool:
    """Whether the last digit is the check digit of a payment card."""
    digits = [int(each) for each in reversed(written) if each.isdigit()]
    doubled = (sum(divmod(2 * each, 10)) for each in digits[1::2])
    return (sum(digits[::2]) + sum(doubled)) % 10 == 0
