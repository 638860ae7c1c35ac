"""Fetches pages of the web: which URLs and addresses may be used, the download, and the text of a page."""
