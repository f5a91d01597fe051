"""Recording a pass of a model: its inputs, its attention, and a twin that runs instead of the model."""
