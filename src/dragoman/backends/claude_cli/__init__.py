"""The Claude Code CLI as a model: the user's own installed `claude`, under its own login, with the client's tools.

    Request ─conversation→ lines for a process; its lines ─the Messages API's reader→ events

A process answers one request and is ended; others wait warm for the next (`process_pool`). See docs/claude-cli.md.
"""
