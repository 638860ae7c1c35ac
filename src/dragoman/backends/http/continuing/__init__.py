"""Responses whose text another server can continue, and requests that continue one."""
