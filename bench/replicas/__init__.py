"""What replicas lose when processes are killed: three gateways, two llama-servers, Redis, PostgreSQL and nginx."""
