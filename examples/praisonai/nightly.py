"""A pass every night at three, on PraisonAI's own scheduler, in the process of the agent.

The scheduler wants ``cron:`` in front of the expression; the bare one of PraisonAI's documentation is refused. Times
are UTC unless PRAISONAI_SCHEDULE_TIMEZONE says otherwise.
"""

from __future__ import annotations

import logging
from typing import Any

from praisonaiagents import Agent
from praisonaiagents.scheduler import ConfigYamlScheduleStore, ScheduleJob, ScheduleLoop, parse_schedule

from memfold_flows.consolidator import Consolidator

NAME = "memory-consolidation"

log = logging.getLogger("nightly")


def nightly_pass(memory: Any, store: Any) -> ScheduleLoop:
    """A loop that consolidates this memory whenever the job is due; the job is added where it is missing."""
    if not any(job.name == NAME for job in store.list()):
        store.add(ScheduleJob(name=NAME, schedule=parse_schedule("cron:0 3 * * *"), message="consolidate the memory"))

    def consolidate(job: ScheduleJob) -> None:
        if job.name != NAME:
            return
        result = Consolidator().consolidate(memory)
        if result.rejected:
            log.warning("the memory stays as it was: %s", result.reason, extra=result.context)
        else:
            log.info("%d memories, %d merged", result.entries_after, result.merged, extra=result.context)

    return ScheduleLoop(on_trigger=consolidate, store=store)


def main() -> None:
    logging.basicConfig(level=logging.INFO)
    agent = Agent(name="assistant", instructions="You help Ann.", memory={"backend": "sqlite", "user_id": "ann"})
    nightly_pass(agent._memory_instance, ConfigYamlScheduleStore()).run_forever()


if __name__ == "__main__":
    main()
