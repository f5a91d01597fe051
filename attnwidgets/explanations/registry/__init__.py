"""The methods by name: what each requires of a trace, and the result that it returns."""
