"""Tool-call validation and repair: checks a call's arguments against the schema of its tool, and repairs them if
possible.
"""
