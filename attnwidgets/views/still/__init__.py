"""Still pictures of views: PNG, SVG and PDF by matplotlib, and their alternative text."""
