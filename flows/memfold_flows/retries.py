"""Which steps are tried again where a store is busy, with Prefect (``tasks.py``) or without."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Any

from memfold.errors import Transient

logger = logging.getLogger(__name__)

#: A busy store may be free a moment later; nothing else gets better by trying again.
STORE_STEPS = ("snapshot", "apply", "note")

_PAUSES_SECONDS = (1.0, 5.0)


def is_transient(error: object) -> bool:
    """Whether the same step may succeed a moment later."""
    return isinstance(error, Transient) or isinstance(getattr(error, "__cause__", None), Transient)


def patiently(name: str, function: Callable[..., Any], /, *arguments: Any, **options: Any) -> Any:
    """The step runner for passes inside an agent's process, where nobody is there to start them again."""
    for pause in _PAUSES_SECONDS if name in STORE_STEPS else ():
        try:
            return function(*arguments, **options)
        except Exception as error:
            if not is_transient(error):
                raise
            logger.info("the store is busy; the step %s is tried again in %g s", name, pause)
        time.sleep(pause)
    return function(*arguments, **options)
