"""Sentences about a head that are checked on texts: their grammar, the evidence, and the verdict."""
