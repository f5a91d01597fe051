"""Long answers, sentence by sentence: effects of suppressing sentences, and heads that look back."""
