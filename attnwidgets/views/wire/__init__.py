"""Messages between a view and its browser side, and the data that they carry."""
