"""A run as one page for a browser: ``page.py`` makes it from the template, the style and the script beside it."""
