"""One recorded pass: what goes in, what is kept, and the model handed back as it was."""
