"""OpenTelemetry spans of each request: the server's, one for each attempt, tool run and phase of the embedded engine.

    POST /v1/messages                       server span; its parent is the client's span
      chat qwen3                            an attempt: the request that an upstream server gets
      execute_tool web_search               a tool that the gateway runs
      chat qwen3                            the next round, a retry, failover, or a re-ask
        load · read prompt · decode         the embedded engine

Only `environment` is imported without need; the other modules import `opentelemetry`, which is in an extra.
"""
