"""Pictures and sound: where patches and frames are."""
