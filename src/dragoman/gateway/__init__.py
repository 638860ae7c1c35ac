"""From a request to the events of its response: routing, failover, guard, stored responses."""
