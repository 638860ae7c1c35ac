"""The child process that runs llama.cpp. `start_worker` starts it as a package of its own and never imports it."""
