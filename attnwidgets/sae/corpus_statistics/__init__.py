"""What every feature of an SAE does on a corpus."""
