"""Drawing on paper: colours, labels, and figures of plain arrays, for every part that plots."""
