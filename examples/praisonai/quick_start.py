"""An agent's memory, consolidated while the agent holds it. No model is called: the memories are stored by hand.

Run it twice: the user has a fixed name, so the second time the agent finds the memory of the first. With
``Agent(memory=True)`` each agent would get a user of its own, and there would be nothing to consolidate tomorrow.
"""

from __future__ import annotations

from praisonaiagents import Agent

from memfold_flows.consolidator import Consolidator


def remember(agent: Agent) -> None:
    """What an agent writes inline over a day: the same fact more than once."""
    about = {"user_id": "ann", "session_id": "monday"}
    for text in (
        "Deploys are frozen on Fridays after 14:00 UTC.",
        "The billing service listens on port 8443.",
        "Deploys are frozen on Fridays, after 14:00 UTC.",
        "The staging database is refreshed every Sunday.",
    ):
        agent.store_memory(text, memory_type="long_term", metadata=dict(about))


def main() -> None:
    agent = Agent(name="assistant", instructions="You help Ann.", memory={"backend": "sqlite", "user_id": "ann"})
    remember(agent)

    result = Consolidator().consolidate(agent._memory_instance, max_loss_fraction=0.25)

    print(f"{result.entries_before} -> {result.entries_after}, {result.merged} merged, loss {result.loss_fraction:.0%}")
    print(f"look at it: memfold show {result.context['run_id']}")
    print(f"take it back: memfold undo {result.context['run_id']}")


if __name__ == "__main__":
    main()
