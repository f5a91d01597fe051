"""Drawing without a browser: colours, labels, and figures of plain arrays.

In: plain arrays and labels. Out: matplotlib's figures, small pictures made without it, and HTML tables. Begin
with `sheet.py` and one of `parts/`. Labels are untrusted text: they are drawn through `theme.printable`,
never as formulas. Nothing here knows a trace or an explanation.
"""
