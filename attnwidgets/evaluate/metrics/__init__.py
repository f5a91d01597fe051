"""The metrics: faithfulness, plausibility, stability, complexity and agreement of explanations."""
