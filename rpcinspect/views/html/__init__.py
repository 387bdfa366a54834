"""What the HTML pages have in common: the page of a run and the page of a comparison."""
