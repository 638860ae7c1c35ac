"""The Claude Code CLI as a model: the installed `claude`, with the user's own login and the client's tools.

    Request ─conversation→ lines for a process; its output lines ─reader of the Messages API→ events

A process serves one request and is then terminated; others wait, already started, for the next (`process_pool`). See
docs/claude-cli.md.
"""
