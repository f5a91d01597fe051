"""The types that methods return, and how they are read, aggregated, drawn and saved."""
