"""Text that the recordings of Codex may contain in addition to the text of the agent tests."""

from support import agents

PATCH = '*** Begin Patch\n*** Add File: new.txt\n+Grüße, "Ada"\n*** End Patch\n'
OURS = (*agents.OURS, PATCH[:20], "tools.exec_command")
