"""Ends the processes and folders of a gateway that has exited, also after SIGKILL."""
