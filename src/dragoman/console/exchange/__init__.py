"""One exchange as four aligned lanes, and what can be done with it."""
