"""Live pages: small models whose forward pass runs in a page without a kernel."""
