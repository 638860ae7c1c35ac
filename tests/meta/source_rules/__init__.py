"""Rules for the text of src that no linter knows: wording, docstrings, names. `make check` runs them."""
