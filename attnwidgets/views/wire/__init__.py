"""What travels between a view and its browser side, and how either asks the other."""
