"""A whole run as one page of HTML, with its scripts and styles in `templates/`."""
