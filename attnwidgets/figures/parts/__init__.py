"""The parts that figures consist of; each says its height and draws itself."""
