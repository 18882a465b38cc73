"""From verdicts to plans, one file per kind of plan. `agent.execute` carries them out."""
