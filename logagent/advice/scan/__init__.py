"""Every log dir and the directories in it (`logagent scan`)."""
