"""Named API keys: who may use which models, upstreams and tools."""
